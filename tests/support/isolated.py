"""An app whose jobs run in processes of their own; what a job did is a line of the file ``ACTING_TRACE``."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

from henchman import App, Discard, Failure, Isolated, JobTimeout, Kill, Snooze, current_job
from henchman.worker.watchdog import Watchdog

app = App(concurrency=4, isolated_ready=1, encryption_keys={"test": "A" * 42 + "0="})
_seen: list[int] = []


class Refused(Exception):
    """An error with an ``__init__`` of its own, and with what a hook may ask it for."""

    def __init__(self, code: int, *, wait: float) -> None:
        super().__init__(f"refused with {code}")
        self.code = code
        self.wait = wait


def write(*words: object) -> None:
    """One line to the trace, in one write."""
    file = os.open(os.environ["ACTING_TRACE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, (" ".join(map(str, words)) + "\n").encode())
    finally:
        os.close(file)


@app.server_middleware.add
def where(run: Any, call_next: Callable[[], Any]) -> Any:
    """Says in which process it runs, where a job asks for that."""
    if "where" in run.payload.get("tags", ()):
        write("middleware", os.getpid())
    return call_next()


def _wait_for_ever(*, heed: bool = True) -> None:
    while True:
        try:
            time.sleep(0.01)
        except BaseException:
            if heed:
                raise


@app.job(name="plain", isolate=True, retry=0, tags=["where"])
def plain(name: str = "plain") -> None:
    write(name, os.getpid(), os.getppid())


@app.job(name="beside", retry=0)
def beside(name: str = "beside") -> None:
    write(name, os.getpid(), os.getppid())


@app.job(name="noop", isolate=True, retry=0)
def noop() -> None: ...


@app.job(name="add", isolate=True, result_ttl=600, retry=0)
def add(one: int, other: int) -> int:
    return one + other


@app.job(name="day", isolate=True, result_ttl=600, retry=0)
async def day(day: date) -> date:
    await asyncio.sleep(0)
    return day.replace(day=1)


@app.job(name="unkept", isolate=True, result_ttl=600, retry=0)
def unkept() -> Any:
    return object()


@app.job(name="ends", isolate=True, retry=0, backtrace=True)
def ends(how: str) -> None:
    """Ends in every way in which a job may."""
    if how == "failure":
        raise Failure("not eligible")
    if how == "snooze":
        raise Snooze(300, "later")
    if how == "discard":
        raise Discard("of no use")
    if how == "kill":
        raise Kill("never again")
    if how == "exit":
        sys.exit(3)
    try:
        {}["key"]
    except KeyError as cause:
        raise Refused(7, wait=5.0) from cause


@app.job(name="asks", isolate=True, retry=3, retry_in=lambda count, error: error.wait, retry_on=Refused)
def asks() -> None:
    raise Refused(8, wait=1234.0)


@app.job(name="says", isolate=True, track=True, retry=0, secret=("card",))
def says(card: str) -> None:
    job = current_job()
    job.log(f"pays with {card}")
    job.progress(1, 2)
    write("says", job.jid, job.queue, job.attempt, job.name, job.deadline, job.cancelled)  # type: ignore[attr-defined]


@app.job(name="keeps", isolate=True, retry=3, retry_in=0)
def keeps() -> None:
    """Goes on where it was, after a crash."""
    job = current_job()
    if job.last_checkpoint() is None:
        job.checkpoint({"at": 7})
        os.kill(os.getpid(), signal.SIGKILL)
    write("keeps", job.last_checkpoint())


@app.job(name="pushes", isolate=True, retry=0)
def pushes() -> None:
    current_job().batch.add(plain, [("from inside",)])


@app.job(name="sealed", isolate=True, encrypt=True, retry=0)
def sealed(word: str) -> None:
    write("sealed", word)


@app.job(name="late", isolate=Isolated(grace=0.3), timeout=0.3, retry=0)
def late(heed: bool) -> None:
    write("begins", os.getpid())
    try:
        _wait_for_ever(heed=heed)
    except JobTimeout:
        write("told", os.getpid())
        raise


@app.job(name="alate", isolate=True, timeout=0.3, retry=0)
async def alate() -> None:
    try:
        await asyncio.sleep(600)
    finally:
        write("told", os.getpid())


@app.job(name="deaf", isolate=Isolated(grace=0.2), timeout=0.3, retry=0)
def deaf() -> None:
    """Holds the interpreter lock in C code for ever: no exception arrives, no thread turns."""
    write("begins", os.getpid())
    ctypes.PyDLL(None).sleep(100_000)


@app.job(name="hangs", isolate=Isolated(grace=0.2), retry=0)
def hangs(name: str, heed: bool) -> None:
    write("begins", name, os.getpid(), os.getppid())
    try:
        _wait_for_ever(heed=heed)
    finally:
        write("leaves", name)


@app.job(name="ahangs", isolate=Isolated(grace=0.2), retry=0)
async def ahangs(name: str) -> None:
    write("begins", name, os.getpid(), os.getppid())
    try:
        await asyncio.sleep(600)
    finally:
        write("leaves", name)


@app.job(name="looks", isolate=Isolated(grace=60), retry=0)
def looks() -> None:
    """Ends by itself when it is cancelled, or the worker stops."""
    write("begins", "looks", os.getpid(), os.getppid())
    job = current_job()
    while not (job.cancelled or job.stopping):
        time.sleep(0.01)
    write("cancelled" if job.cancelled else "stopping")


@app.job(name="crashes", isolate=Isolated(memory="256MB"), retry=0)
def crashes(how: str) -> None:
    write("begins", how, os.getpid())
    if how == "segfault":
        ctypes.string_at(0)
    if how == "exit":
        os._exit(7)
    if how == "abort":
        os.abort()
    if how == "closes":
        os.closerange(3, 512)
        _wait_for_ever()
    if how == "memory":
        held = []
        while True:
            held.append(bytearray(16 * 1024**2))
    write("survives", how)


@app.job(name="grows", isolate=Isolated(memory="256MB"), retry=0)
def grows() -> None:
    write("grows", os.getpid())
    _seen.extend(range(4_000_000))


@app.job(name="twice", isolate=Isolated(reuse=2), retry=0)
def twice() -> None:
    write("twice", os.getpid())


@app.job(name="forks", isolate=True, retry=0)
def forks() -> None:
    pid = os.fork()
    if pid:
        write("forks", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


@app.job(name="forks_in_a_bad_moment", isolate=True, retry=0)
def forks_in_a_bad_moment() -> None:
    """As if its process looked after its deadlines just then."""
    [watchdog] = [one for one in gc.get_objects() if isinstance(one, Watchdog)]
    held, forked = threading.Event(), threading.Event()

    def hold() -> None:
        with watchdog._lock:
            held.set()
            forked.wait(60)

    threading.Thread(target=hold).start()
    assert held.wait(60)
    pid = os.fork()
    if pid:
        forked.set()
        write("forks", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


@app.job(name="alone", isolate=True, key="what", unique="running", retry=0)
def alone(what: str, name: str, wait: bool) -> None:
    write("start", name, os.getpid(), current_job().token)
    with contextlib.suppress(FileNotFoundError):
        while wait and not Path(os.environ["ACTING_TRACE"]).with_suffix(".open").exists():
            write("alive", name, os.getpid(), time.monotonic())
            time.sleep(0.001)
    write("end", name, os.getpid(), time.monotonic())
