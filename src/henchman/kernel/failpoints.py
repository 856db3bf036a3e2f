"""Places where a test may end this process or cut its connection, before or after the server executed a call.

Closed, and worth one look at a flag, unless a test opens them: with ``HENCHMAN_TEST_FAULTS`` in the environment, such
as ``kill@settle:before#3`` (SIGKILL itself at the third passing), ``stop@lead:after`` (SIGSTOP, until a test sends
SIGCONT) or ``drop@fetch:after`` (the connection breaks when the answer has come and was not read), several separated by
commas. With ``HENCHMAN_TEST_FAULTS_FOLDER`` each strikes once for all processes that share the folder, and leaves a
file of its name there.
"""

from __future__ import annotations

import os
import re
import select
import signal
import threading
from collections import Counter
from pathlib import Path
from typing import NamedTuple, Protocol

_PATTERN = re.compile(r"(kill|stop|drop)@([\w ]+:(?:before|after))(?:#(\d+))?")
ANSWER_WITHIN = 5_000  # ms that the server may take until its answer proves that it executed a call

armed = False


class _Fault(NamedTuple):
    act: str
    at: str
    passing: int


class HasFileno(Protocol):
    """A socket."""

    def fileno(self) -> int: ...


_faults: list[_Fault] = []
_folder: Path | None = None
_passed: Counter[str] = Counter()
_lock = threading.Lock()


def open_points(text: str, folder: Path | None = None) -> None:
    """Open the points that ``text`` names, in place of any others; ValueError names what is no fault."""
    global armed, _folder  # noqa: PLW0603 - one process, one set of points
    found = []
    for word in text.split(","):
        match = _PATTERN.fullmatch(word.strip())
        if match is None:
            raise ValueError(f"{word!r} is no fault: write kill@settle:before#3 or drop@fetch:after")
        found.append(_Fault(match[1], match[2], int(match[3] or 1)))
    with _lock:
        _faults[:] = found
        _passed.clear()
        _folder = folder
        armed = True


def open_from_environment() -> None:
    """What ``HENCHMAN_TEST_FAULTS`` says; nothing when it is not set."""
    text = os.environ.get("HENCHMAN_TEST_FAULTS")
    if text:
        folder = os.environ.get("HENCHMAN_TEST_FAULTS_FOLDER")
        open_points(text, Path(folder) if folder else None)


def close() -> None:
    """Close every point."""
    global armed  # noqa: PLW0603
    armed = False


def point(name: str) -> None:
    """Pass the point ``name``: nothing happens, or this process ends, or ConnectionResetError is raised."""
    with _lock:
        _passed[name] += 1
        due = [one for one in _faults if (one.at, one.passing) == (name, _passed[name])]
    for fault in due:
        if _claimed(fault):
            if fault.act == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            if fault.act == "stop":
                os.kill(os.getpid(), signal.SIGSTOP)
                continue
            raise ConnectionResetError(f"dropped by a test at {name}")


def executed(name: str, sock: HasFileno | None) -> None:
    """Pass the point ``<name>:after``: a call was sent on ``sock``; if a test waits here, first comes its answer."""
    at = f"{name}:after"
    if sock is not None and any(one.at == at for one in _faults):
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        poll.poll(ANSWER_WITHIN)
    point(at)


def _claimed(fault: _Fault) -> bool:
    """Whether nobody else who shares the folder has struck with this one."""
    if _folder is None:
        return True
    try:
        os.close(os.open(_folder / f"{fault.act}@{fault.at}#{fault.passing}", os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        return False
    return True


open_from_environment()
