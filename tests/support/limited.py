"""An app whose jobs have a limit of three, and write when they begin and end."""

from __future__ import annotations

import os
import time

from henchman import App, Concurrent, current_job

app = App(concurrency=4)


def write(event: str) -> None:
    """One line to the trace, in one write; when, by a clock that all processes share."""
    job = current_job()
    file = os.open(os.environ["ACTING_TRACE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, f"{event} {job.jid} {os.getpid()} {job.token} {time.monotonic()}\n".encode())
    finally:
        os.close(file)


@app.job(name="pay", limits=[Concurrent("bank", 3)])
def pay(number: int) -> None:
    """Takes 10 ms."""
    write("start")
    time.sleep(0.01)
    write("end")
