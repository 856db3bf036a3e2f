"""The jobs of the chaos run that have a business key, and those that are rows of an outbox.

What runs alone with its key writes down from when to when it does: at its start, every 50 ms, and at its end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from begun import begun
from jobs import acting, app, ledger
from kinds import KEYED

from henchman import Failure, Kill, current_job
from henchman.worker.claim import Claims

__all__ = ["JOBS"]

STEP = 0.05


@contextmanager
def _alone(kind: str, name: str, key: str) -> Iterator[Iterator[None]]:
    """Write that a job has its key for itself; gives what it is to go through, a step each 50 ms, for ``seconds``."""
    words = (KEYED[kind].scope or kind, name, current_job().token)
    ledger.write("kstart", *words, key, begun())

    def steps() -> Iterator[None]:
        while True:
            yield
            ledger.write("kbeat", *words)

    how = "ok"
    try:
        yield steps()
    except BaseException as error:
        how = type(error).__name__
        raise
    finally:
        ledger.write("kend", *words, how)


def _count(seconds: float) -> range:
    """Counted slices, so that a frozen process has not slept when it goes on."""
    return range(max(1, round(seconds / STEP)))


def _fail_first(attempt: int, fails: int) -> None:
    if attempt <= fails:
        raise ValueError(f"attempt {attempt} fails as told")


@app.job(name="once", queue="fast", retry=5, retry_in=1.0, key="name", **KEYED["once"].options)
def once(key: str, name: str, fails: int) -> None:
    with acting(key) as attempt:
        _fail_first(attempt, fails)


@app.job(name="oncefail", queue="fast", key="name", **KEYED["oncefail"].options)
async def oncefail(key: str, name: str) -> None:
    with acting(key):
        raise Failure("the answer is no")


@app.job(name="oncedead", queue="fast", key="name", **KEYED["oncedead"].options)
def oncedead(key: str, name: str) -> None:
    with acting(key):
        raise Kill("enough")


@app.job(name="until", queue="slow", retry=5, retry_in=1.0, key="name", **KEYED["until"].options)
async def until(key: str, name: str, fails: int, seconds: float) -> None:
    with acting(key) as attempt:
        await asyncio.sleep(seconds)
        _fail_first(attempt, fails)


@app.job(name="turn", queue="fast", retry=5, retry_in=1.0, key="name", **KEYED["turn"].options)
def turn(key: str, name: str, fails: int, seconds: float) -> None:
    with acting(key) as attempt:
        for _ in _count(seconds):
            time.sleep(STEP)
        _fail_first(attempt, fails)


@app.job(name="queued", queue="held", key="name", **KEYED["queued"].options)
def queued(key: str, name: str) -> None:
    with acting(key):
        pass


@app.job(name="desk", queue="slow", key="name", **KEYED["desk"].options)
def desk(key: str, name: str, seconds: float) -> None:
    with acting(key), _alone("desk", name, key) as steps:
        for _ in _count(seconds):
            time.sleep(STEP)
            next(steps)


@app.job(name="adesk", queue="slow", key="name", **KEYED["adesk"].options)
async def adesk(key: str, name: str, seconds: float) -> None:
    with acting(key), _alone("adesk", name, key) as steps:
        for _ in _count(seconds):
            await asyncio.sleep(STEP)
            next(steps)


@app.job(name="both", queue="held", key="name", **KEYED["both"].options)
def both(key: str, name: str, seconds: float) -> None:
    with acting(key), _alone("both", name, key) as steps:
        for _ in _count(seconds):
            time.sleep(STEP)
            next(steps)


@app.job(name="fresh", queue="held", key="name", **KEYED["fresh"].options)
def fresh(push: str, name: str, seconds: float) -> None:
    """Which push its arguments are of is not known before it starts, so its own key is its id."""
    key = f"fresh-{current_job().jid}"
    with acting(key), _alone("fresh", name, key) as steps:
        ledger.write("frun", key, push)
        for _ in _count(seconds):
            time.sleep(STEP)
            next(steps)


@app.job(name="sold", queue="fast")
def sold(key: str) -> None:
    """What is a row of the outbox."""
    with acting(key):
        pass


JOBS: dict[str, Any] = {
    one.name: one for one in (once, oncefail, oncedead, until, turn, queued, desk, adesk, both, fresh)
}


def _note_claims() -> None:
    """Know of each job when it was asked first whether it may start, and whether it had to wait."""
    ask = Claims._ask

    def noted(self: Any, asking: Any, behind: int) -> Any:
        ledger.write("asked", *(one.run.jid for one in asking))
        answers, drawn = ask(self, asking, behind)
        parked = [one.run.jid for one, answer in zip(asking, answers, strict=True) if answer.parked and one.key.scope]
        if parked:
            ledger.write("parked", *parked)
        late = len(drawn) + sum(answer.behind for answer in answers)
        if late:
            ledger.write("behind", late)
        return answers, drawn

    Claims._ask = noted  # type: ignore[method-assign]


_note_claims()
