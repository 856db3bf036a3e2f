"""An app whose job with a key does not heed its time-out; the patience with it is half a second, not half a minute."""

from __future__ import annotations

import os
import threading
import time

from henchman import App, current_job
from henchman.worker.watchdog import Watchdog

Watchdog.__init__.__defaults__ = (0.5,)  # grace
app = App(concurrency=4)


def write(event: str, name: str) -> None:
    """One line to the trace, in one write; when, by a clock that all processes share."""
    file = os.open(os.environ["ACTING_TRACE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{event} {name} {os.getpid()} {current_job().token} {time.monotonic()}\n".encode())
    finally:
        os.close(file)


@app.job(name="charge", key="order", unique="running", timeout=0.3)
def charge(order: str, name: str, heeds: bool) -> None:
    """Runs for ever, unless it ``heeds`` its time-out or has none to fear."""
    write("start", name)
    while not heeds:
        try:
            write("alive", name)
            threading.Event().wait(0.05)
        except BaseException:  # noqa: S112 - the thing under test
            continue
    write("end", name)
