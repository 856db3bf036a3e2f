"""Outcomes on disk: how jobs ended while the server was away, for whoever starts here next.

A worker that stops or is killed meanwhile takes what it knows with it, and its jobs run again. With ``journal`` it is
written into a file of that folder, and the next worker that starts there tells the server, if the job has not started
anew by then. docs/reliability.md says what that cannot promise.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import zlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import msgspec

from henchman.work.unit import Row, Unit

__all__ = ["BAD", "SUFFIX", "EndLine", "EndsFile", "Journal", "waiting"]

SUFFIX: Final = ".journal"
BAD: Final = ".bad"  # behind the name of a file with a damaged line in its middle: kept, and not read again
MOST_LINES: Final = 100_000  # that one process keeps
MOST_BYTES: Final = 64 << 20
_VERSION: Final = 1


class EndLine(msgspec.Struct, frozen=True, array_like=True):
    """One line: the unit's in-flight list and its queue, and how it ended, as it goes to the server."""

    flight: str
    queue: str
    payload: bytes
    ending: str
    stored: bytes
    delay: float | str
    effects: bytes


class _FirstLine(msgspec.Struct, frozen=True):
    version: int
    server: str
    identity: str


class EndsFile(NamedTuple):
    """A file that this process has for itself: what it holds, and whether it is of the server that was asked for."""

    path: Path
    handle: BinaryIO
    rows: list[EndLine]
    ours: bool

    def remove(self) -> None:
        """All of it was told."""
        self.path.unlink(missing_ok=True)
        self.handle.close()


class Journal:
    """The file of one process; it is made with the first line, and goes when nothing in it waits any more. ``server``
    names the data of the server: lines about other data are never told. OSError from every method."""

    def __init__(self, folder: Path, server: str, identity: str) -> None:
        self._folder, self._head = folder, _FirstLine(_VERSION, server, identity)
        self._noted: set[Unit] = set()
        self._file: BinaryIO | None = None
        self._path = folder / f"{os.getpid()}-{identity.rpartition(':')[2]}{SUFFIX}"
        self._lines = self._bytes = 0

    def note(self, rows: Iterable[Row]) -> bool:
        """Write down what of ``rows`` is not there yet, down to the disk. False: no more has room.

        What is given back is not written: that happens by itself. Nor is what another source settles, whose fence is
        the process.
        """
        fresh = [row for row in rows if row[0] not in self._noted and row[0].source is None and row[1] != "released"]
        for place, (unit, ending, stored, delay, effects) in enumerate(fresh):
            line = EndLine(unit.flight.key, unit.flight.queue, unit.payload, ending, stored, delay, effects)
            if not self._write(line):
                self._sync(fresh[:place])
                return False
        self._sync(fresh)
        return True

    def _write(self, line: EndLine) -> bool:
        if self._file is None:
            self._file = self._made()
        text = _line(line)
        if self._lines >= MOST_LINES or self._bytes + len(text) > MOST_BYTES:
            return False
        self._file.write(text)
        self._lines, self._bytes = self._lines + 1, self._bytes + len(text)
        return True

    def _made(self) -> BinaryIO:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        file = os.fdopen(handle, "wb")
        file.write(_line(self._head))
        return file

    def _sync(self, rows: Sequence[Row]) -> None:
        if self._file is not None and rows:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._noted.update([row[0] for row in rows])

    def settled(self, held: Collection[Unit]) -> None:
        """Remove the file if nothing that it tells of is among ``held`` any more."""
        if self._file is not None and self._noted.isdisjoint(held):
            self._path.unlink(missing_ok=True)
            self.close()
            self._noted, self._lines, self._bytes = set(), 0, 0

    def close(self) -> None:
        """Let go of the file: whoever starts next reads it."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _line(value: Any) -> bytes:
    text = msgspec.json.encode(value)
    return b"%08x %s\n" % (zlib.crc32(text), text)


def waiting(folder: Path, server: str) -> Iterator[EndsFile]:
    """The files in ``folder`` that no living process has, each locked until it is closed or removed. One
    with a damaged line that is not its last is renamed, and told as far as it can be read."""
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        with contextlib.suppress(FileNotFoundError):  # another process was quicker
            handle = path.open("rb")
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                handle.close()
                continue
            if path.exists():
                yield _read(path, handle, server)
            else:
                handle.close()


def _read(path: Path, handle: BinaryIO, server: str) -> EndsFile:
    texts = [_checked(line) for line in handle.read().splitlines(keepends=True)]
    whole = texts.index(None) if None in texts else len(texts)
    if whole < len(texts) - 1:
        path = path.rename(path.with_name(path.name + BAD))
    try:
        head = msgspec.json.decode(texts[0] or b"", type=_FirstLine) if texts else None
        rows = [msgspec.json.decode(text or b"", type=EndLine) for text in texts[1:whole]]
    except msgspec.MsgspecError:
        head, rows = None, []
    return EndsFile(path, handle, rows, head is not None and (head.version, head.server) == (_VERSION, server))


def _checked(line: bytes) -> bytes | None:
    """The text of a line that is whole; None where it is torn or damaged."""
    checksum, _, text = line.removesuffix(b"\n").partition(b" ")
    return text if line.endswith(b"\n") and checksum == b"%08x" % zlib.crc32(text) else None
