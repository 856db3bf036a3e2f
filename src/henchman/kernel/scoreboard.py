"""Shared memory between a worker process and its supervisor: signs of life, and which jobs have started.

What a killed process was running can be told by nobody but this: the supervisor reads it after the death. A sign takes
one store into the memory; there is no lock, because each place has one writer.
"""

from __future__ import annotations

import mmap
import struct

STATES = {0: "stuck", 1: "fetching", 2: "away", 3: "hung"}  # what a process says of itself when it turns
_PLACES = 1024  # of which the marks take the last
_ROOM = 40  # bytes of a jid: a longer one is cut, which the reader allows for
_FIRST = 64
SCOREBOARD_BYTES = _FIRST + _PLACES * _ROOM
STARTS = _PLACES - 64
_write = struct.Struct(f"{_ROOM}s").pack_into
_MARKS = 16  # payloads that are read or settled now: the last 64 places, four for each
_MARK_ROOM = 4 * _ROOM
_FIRST_MARK = SCOREBOARD_BYTES - _MARKS * _MARK_ROOM
_TAIL = 150  # bytes of a payload's end, where its id and times stand
_write_mark = struct.Struct(f"{_TAIL + 1}p").pack_into  # its length in one byte, then the bytes


Memory = bytearray | mmap.mmap


class Scoreboard:
    """``memory`` of ``SCOREBOARD_BYTES``; the default is private: for a worker that nobody watches."""

    def __init__(self, memory: Memory | None = None) -> None:
        self._memory: Memory = bytearray(SCOREBOARD_BYTES) if memory is None else memory

    def beat(self, number: int, state: int) -> None:
        """The interpreter turned for the ``number``-th time; ``state`` is a key of ``STATES``."""
        self._memory[0:8] = number.to_bytes(8, "little")
        self._memory[8:9] = bytes([state])

    def last_beat(self) -> tuple[bytes, str]:
        """The last beat, to be compared with the one before, and the state that was told with it."""
        return bytes(self._memory[0:8]), STATES.get(self._memory[8:9][0], "stuck")

    def alone(self, yes: bool) -> None:
        """Whether the job that runs has the process to itself."""
        self._memory[9:10] = bytes([yes])

    def was_alone(self) -> bool:
        """Whether the job that ran had the process to itself."""
        return bool(self._memory[9:10][0])

    def settling(self, yes: bool) -> None:
        """Whether outcomes are on their way to the server."""
        self._memory[10] = yes

    def was_settling(self) -> bool:
        """Whether outcomes were on their way."""
        return bool(self._memory[10])

    def one_by_one(self, yes: bool) -> None:
        """The supervisor's place: whether each outcome is settled in a call of its own."""
        self._memory[11] = yes

    def is_one_by_one(self) -> bool:
        """Whether the supervisor wants that."""
        return bool(self._memory[11])

    def start(self, place: int, jid: str) -> None:
        """A job started in slot ``place``; it stays marked until another starts there, or ``clear``."""
        if place < STARTS:
            _write(self._memory, _FIRST + place * _ROOM, jid.encode("utf-8", "replace"))

    def clear(self, place: int) -> None:
        """Nothing runs in slot ``place``."""
        if place < STARTS:
            _write(self._memory, _FIRST + place * _ROOM, b"")

    def started(self) -> list[bytes]:
        """The jids that are marked, cut to 40 bytes."""
        places = range(_FIRST, _FIRST_MARK, _ROOM)
        return [jid for place in places if (jid := bytes(self._memory[place : place + _ROOM]).rstrip(b"\0"))]

    def mark(self, place: int, payload: bytes) -> None:
        """``payload`` is read, or settled, by the one writer of ``place``; an empty one: nothing is."""
        if place < _MARKS:
            _write_mark(self._memory, _FIRST_MARK + place * _MARK_ROOM, payload[-_TAIL:])

    def marked(self) -> list[bytes]:
        """The ends of the payloads that are marked, at most 150 bytes of each."""
        places = range(_FIRST_MARK, SCOREBOARD_BYTES, _MARK_ROOM)
        return [bytes(self._memory[at + 1 : at + 1 + size]) for at in places if (size := self._memory[at])]
