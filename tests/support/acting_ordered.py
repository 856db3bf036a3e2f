"""An app with ordered queues whose handlers do what their payloads say, for tests with real worker processes.

A payload is ``{"key": …, "do": a deed of ``support.acting``, "seconds": …, "times": …}``: the deed is done in the first
``times`` runs (1) in which its key comes, by a process that has not died of it before. Each run writes lines
``<event> <id> <pid> <token> <seconds> <keys>`` to the file named by ``ORDERED_TRACE``; a start that finds the process
of an earlier start alive that has not ended is written as "beside".

``ORDERED_WATCH``, ``ORDERED_GRACE``: seconds, instead of the 15 of the lifeline and the 30 of the watchdog.
"""

from __future__ import annotations

import os
import time
from typing import Any, NamedTuple

from henchman import App, current_job
from henchman.worker import rescue
from henchman.worker.watchdog import Watchdog
from support.acting import DEEDS
from support.processes import state_of

__all__ = ["Line", "app", "lines"]

TRACE = os.environ.get("ORDERED_TRACE", "")
app = App()


class Line(NamedTuple):
    """One line of the trace."""

    event: str
    id: str
    pid: int
    token: int
    at: float
    keys: list[str]


def lines(path: str | os.PathLike[str]) -> list[Line]:
    """The trace so far."""
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        split = [line.split() for line in file]
    return [Line(word, name, int(pid), int(token), float(at), keys) for word, name, pid, token, at, *keys in split]


def _write(event: str, name: str, keys: list[str]) -> None:
    file = os.open(TRACE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    words = [event, name, str(os.getpid()), str(current_job().token), f"{time.time():.6f}", *keys]
    os.write(file, (" ".join(words) + "\n").encode())
    os.close(file)


def _lives_beside(name: str, earlier: list[Line]) -> bool:
    """Whether another start of this id has not ended, and its process lives."""
    ended = {line.token for line in earlier if line.event == "end"}
    held = {line.pid for line in earlier if line.id == name and line.event == "start" and line.token not in ended}
    return any(state_of(pid) not in ("", "Z", "X") for pid in held)


def _do(claim: dict[str, list[dict[str, Any]]]) -> None:
    earlier = lines(TRACE)
    for name, payloads in claim.items():
        if _lives_beside(name, earlier):
            _write("beside", name, [])
        _write("start", name, [one["key"] for one in payloads])
    for payloads in claim.values():
        for one in payloads:
            runs = sum(line.event == "start" and one["key"] in line.keys for line in earlier)
            if runs < one.get("times", 1):
                DEEDS[one.get("do", "ok")](one.get("seconds", 0.0))
    for name, payloads in claim.items():
        _write("end", name, [one["key"] for one in payloads])


@app.ordered(name="ids", queue="ids", claim_size=3)
def ids(claim: dict[str, list[dict[str, Any]]]) -> None:
    _do(claim)


@app.ordered(name="brief", queue="brief", timeout=1.5, max_retries=0)  # a start is no matter of luck
def brief(claim: dict[str, list[dict[str, Any]]]) -> None:
    _do(claim)


rescue.WATCH = float(os.environ.get("ORDERED_WATCH", rescue.WATCH))
if "ORDERED_GRACE" in os.environ:
    Watchdog.__init__.__defaults__ = (float(os.environ["ORDERED_GRACE"]),)


@app.ordered(name="told", queue="told", track=True, claim_size=3)
def told(claim: dict[str, list[dict[str, Any]]]) -> None:
    _do(claim)
