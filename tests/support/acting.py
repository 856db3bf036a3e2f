"""One app whose jobs do what their arguments say, for tests with real worker processes.

Each run writes lines ``<event> <name> <pid> <attempt>`` to the file named by ``ACTING_TRACE``, in one write a line.
``ACTING_WATCH``: seconds for which the lifeline watches a dead process, instead of 15. ``ACTING_MARGIN``: seconds that
a process may take to end beyond ``shutdown_timeout``, instead of 20.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from henchman import App, Discard, Failure, Kill, Snooze, current_job
from henchman.work.unit import Unit
from henchman.worker import acker, rescue

if "ACTING_MARGIN" in os.environ:
    sys.modules["__main__"].MARGIN = float(os.environ["ACTING_MARGIN"])  # type: ignore[attr-defined]
rescue.WATCH = float(os.environ.get("ACTING_WATCH", rescue.WATCH))
app = App()
_hoard: list[bytearray] = []
_lock = threading.Lock()


def write(event: str, name: str) -> None:
    """One line to the trace; lines of several processes never mix."""
    file = os.open(os.environ["ACTING_TRACE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{event} {name} {os.getpid()} {current_job().attempt}\n".encode())
    finally:
        os.close(file)


def _sleep(seconds: float) -> None:
    """In slices, as code that waits for something does."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(min(0.02, seconds))


def _asleep(seconds: float) -> None:
    """Sleep, when a line says that it is in here."""
    write("asleep", "here")
    _sleep(seconds)


def _burn(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(1000))


def _hog(seconds: float) -> None:
    """Hold the interpreter lock: nothing else in this process turns."""
    ctypes.PyDLL(None).usleep(int(seconds * 1_000_000))


def _collector(_: float) -> None:
    write("frozen" if gc.get_freeze_count() else "unfrozen", str(gc.get_threshold()[0]))


def _stubborn(seconds: float) -> None:
    """Go on whatever is raised in here."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            _sleep(end - time.monotonic())
        except BaseException:  # noqa: S112 - that is the point
            continue


def _gated(seconds: float) -> None:
    """Raise as soon as there is a file ``<trace>.open``."""
    _held(seconds)
    raise ValueError("as told")


def _held(seconds: float) -> None:
    """Go on until there is a file ``<trace>.open``, at most ``seconds``."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not os.path.exists(os.environ["ACTING_TRACE"] + ".open"):
        time.sleep(0.02)  # between two looks


def _raise(error: BaseException) -> None:
    raise error


def _grasp(seconds: float) -> None:
    """Take a lock without the ``try`` that would let it go."""
    _lock.acquire()
    _sleep(seconds)
    _lock.release()


def _want(seconds: float) -> None:
    with _lock:
        _sleep(seconds)


def _mute(seconds: float) -> None:
    """Nobody in this process can write a log line any more."""
    for handler in logging.getLogger().handlers:
        handler.acquire()
    _sleep(seconds)


def _forks(child: Callable[[], object]) -> None:
    """Write with which status the child ended."""
    pid = os.fork()
    if pid == 0:
        child()
        return
    write(f"status={os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}", "fork")


def _multiprocess(seconds: float) -> None:
    made = multiprocessing.get_context("fork").Process(target=time.sleep, args=[seconds])
    made.start()
    if seconds:
        made.terminate()
    made.join()
    write(f"status={made.exitcode}", "multiprocessing")


def _program(seconds: float) -> None:
    done = subprocess.run([sys.executable, "-c", "pass"], check=False)
    write(f"status={done.returncode}", "program")


DEEDS: dict[str, Any] = {
    "ok": lambda seconds: None,
    "sleep": _sleep,
    "asleep": _asleep,
    "cpu": _burn,
    "collector": _collector,
    "hog": _hog,
    "stubborn": _stubborn,
    "fork": lambda seconds: _forks(lambda: None),
    "fork_exit": lambda seconds: _forks(lambda: sys.exit(7)),
    "fork_raise": lambda seconds: _forks(lambda: _raise(ValueError("as told"))),
    "multiprocessing": _multiprocess,
    "program": _program,
    "grasp": _grasp,
    "want": _want,
    "mute": _mute,
    "kill": lambda seconds: os.kill(os.getpid(), 9),
    "quit": lambda seconds: os._exit(3),
    "exit": lambda seconds: sys.exit(3),
    "raise": lambda seconds: _raise(ValueError("as told")),
    "gated": _gated,
    "held": _held,
    "fail": lambda seconds: _raise(Failure("no")),
    "snooze": lambda seconds: _raise(Snooze(seconds)) if current_job().payload.get("snoozed") else None,
    "discard": lambda seconds: _raise(Discard()),
    "die": lambda seconds: _raise(Kill("enough")),
    "memory": lambda seconds: _hoard.append(bytearray(os.urandom(1024) * int(seconds * 1024))),
}


@dataclass
class Fatal:
    """An argument that ends the process while it is rebuilt."""

    name: str

    def __post_init__(self) -> None:
        with open(os.environ["ACTING_TRACE"], "a", encoding="utf-8") as trace:  # no job runs here yet
            trace.write(f"start {self.name} {os.getpid()} 1\n")
        os.kill(os.getpid(), 9)


class FatalError(Exception):
    """An exception that ends the process when it is asked what it says: while its run is judged."""

    def __str__(self) -> str:
        os.kill(os.getpid(), 9)
        return ""


@app.job(name="fatal_read")
def fatal_read(what: Fatal) -> None:
    """Never begins."""


@app.job(name="fatal_end")
async def fatal_end(name: str) -> None:
    """Ends well, until somebody looks at how."""
    write("start", name)
    raise FatalError


@app.job(name="fatal_settle")
async def fatal_settle(name: str) -> None:
    """Ends well, and kills its process when that is settled, alone or among others (``ACTING_SETTLE``)."""
    write("start", name)


def _strike(units: Iterable[Unit]) -> None:
    if any(b'"fatal_settle"' in unit.payload for unit in units):
        signal.raise_signal(signal.SIGSEGV)  # in this thread: nothing is sent any more


def _settle(host: Any, identity: str, rows: Any, settle: Any = acker.settle_units) -> Any:
    _strike(row[0] for row in rows)
    return settle(host, identity, rows)


def _settle_oldest(host: Any, identity: str, units: Any, settle: Any = acker.settle_oldest_units) -> Any:
    _strike(units)
    return settle(host, identity, units)


if "ACTING_SETTLE" in os.environ:
    acker.settle_units, acker.settle_oldest_units = _settle, _settle_oldest


@app.job(name="act")
def act(name: str, do: str = "ok", seconds: float = 0.0) -> None:
    """Write that it started, do it, write that it ended."""
    write("start", name)
    DEEDS[do](seconds)
    write("end", name)


@app.job(name="act_once")
def act_once(name: str, do: str, seconds: float = 0.0) -> None:
    """As ``act``, but the deed is done only in the first run of this name."""
    with open(os.environ["ACTING_TRACE"], encoding="utf-8") as trace:
        first = not any(line.startswith(f"start {name} ") for line in trace)
    write("start", name)
    if first:
        DEEDS[do](seconds)
    write("end", name)


@app.job(name="aact")
async def aact(name: str, seconds: float = 0.0) -> None:
    """Sleep, awaited."""
    write("start", name)
    await asyncio.sleep(seconds)
    write("end", name)


@app.job(name="afork")
async def afork(name: str, do: str) -> None:
    """Fork on the event loop."""
    write("start", name)
    await asyncio.sleep(0.01)
    pid = os.fork()
    if pid == 0:
        if do == "await":
            await asyncio.sleep(0.01)
        return
    status = os.waitstatus_to_exitcode(await asyncio.to_thread(lambda: os.waitpid(pid, 0)[1]))
    write(f"status={status}", do)
    write("end", name)


@app.job(name="agated")
async def agated(name: str) -> None:
    """Sleep, awaited, until there is a file ``<trace>.open``."""
    write("start", name)
    while not os.path.exists(os.environ["ACTING_TRACE"] + ".open"):  # noqa: ASYNC110, ASYNC240 - told by a file
        await asyncio.sleep(0.05)
    write("end", name)


@app.job(name="ablock_once")
async def ablock_once(name: str, seconds: float) -> None:
    """Sleep without awaiting, in the first run of this name."""
    with open(os.environ["ACTING_TRACE"], encoding="utf-8") as trace:  # noqa: ASYNC230 - that is the point
        first = f"start {name} " not in trace.read()
    write("start", name)
    if first:
        time.sleep(seconds)  # noqa: ASYNC251 - that is the point
    write("end", name)


@app.job(name="brief", timeout=0.3)
def brief(name: str, do: str, seconds: float) -> None:
    """As ``act``, with a time-out."""
    write("start", name)
    DEEDS[do](seconds)
    write("end", name)
