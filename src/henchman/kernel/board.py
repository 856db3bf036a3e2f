"""Shared memory between a worker process and its supervisor: signs of life, and which jobs have started.

What a killed process was running can be told by nobody but this: the supervisor reads it after the death. A sign takes
one store into the memory; there is no lock, because each place has one writer.
"""

from __future__ import annotations

import mmap
import struct

__all__ = ["BOARD_BYTES", "STATES", "Board"]

STATES = {0: "stuck", 1: "fetching", 2: "away", 3: "hung"}  # what a process says of itself when it turns
_PLACES = 1024
_ROOM = 40  # bytes of a jid: a longer one is cut, which the reader allows for
_FIRST = 64
BOARD_BYTES = _FIRST + _PLACES * _ROOM
_write = struct.Struct(f"{_ROOM}s").pack_into


Memory = bytearray | mmap.mmap


class Board:
    """``memory`` of ``BOARD_BYTES``; the default is private: for a worker that nobody watches."""

    def __init__(self, memory: Memory | None = None) -> None:
        self._memory: Memory = bytearray(BOARD_BYTES) if memory is None else memory

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

    def start(self, place: int, jid: str) -> None:
        """A job started in slot ``place``; it stays marked until another starts there, or ``clear``."""
        if place < _PLACES:
            _write(self._memory, _FIRST + place * _ROOM, jid.encode("utf-8", "replace"))

    def clear(self, place: int) -> None:
        """Nothing runs in slot ``place``."""
        if place < _PLACES:
            _write(self._memory, _FIRST + place * _ROOM, b"")

    def started(self) -> list[bytes]:
        """The jids that are marked, cut to 40 bytes."""
        places = range(_FIRST, BOARD_BYTES, _ROOM)
        return [jid for place in places if (jid := bytes(self._memory[place : place + _ROOM]).rstrip(b"\0"))]
