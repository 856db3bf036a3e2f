"""The ordered queues of the chaos run: claims that write down which payloads of which ids they hold, and until when.

Each id has a fence, as a table that handlers write to would have: it stores the highest token that it has seen and
refuses a lower one. What is refused is written down too; it is no failure, but it must have a cause.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from begun import begun
from jobs import FOLDER, app, ledger
from kinds import ORDERED
from ledger import ASKED, wall

from henchman import current_job
from henchman.errors import PoisonPill
from henchman.ordered.source import OrderedSource

__all__ = ["QUEUES", "Payload", "accounts", "products"]

STEP = 0.05
MOST_NAP = 4.0  # seconds of a claim, however many of its payloads ask for one: below its time-out
Payload = dict[str, Any]  # key, and what it does: fails, answer, dead, nap, stuck
_asked: dict[int, float] = {}  # by token: when the worker asked for the claim


@contextmanager
def fence(queue: str, name: str) -> Iterator[Callable[[int], bool]]:
    """The fence of an id, locked: called with a token it says whether that is the highest so far, and stores it."""
    file = os.open(FOLDER / f"fence.{queue}.{name}", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)

        def passes(token: int) -> bool:
            if token < int(os.pread(file, 20, 0) or b"0"):
                return False
            os.pwrite(file, f"{token:020d}".encode(), 0)
            return True

        yield passes
    finally:
        os.close(file)


class Span:
    """One id in one claim, from its start to its end."""

    def __init__(self, queue: str, name: str, payloads: list[Payload]) -> None:
        self.name, self.payloads = name, payloads
        self._words = (queue, name, current_job().token)
        asked = f"{ASKED}{_asked[current_job().token or 0]:.6f}"
        count = current_job().payload.get("retry_count", -1)
        self.entered = self._write("ostart", count, *self._keys(), asked, begun())

    def _keys(self) -> list[str]:
        return [payload["key"] for payload in self.payloads]

    def _write(self, word: str, *more: object) -> bool:
        queue, name, token = self._words
        with fence(queue, name) as passes:
            fine = passes(token or 0)
            ledger.write(word if fine else "orefused", *self._words, *(more if fine else [word, begun()]))
        return fine

    def beat(self) -> None:
        """It goes on."""
        ledger.write("obeat", *self._words)

    def end(self, how: str) -> None:
        """It is over, as far as the handler knows."""
        self._write("oend", how)


def _first(key: str, most: int) -> bool:
    """Whether ``key`` asks this for one of the first ``most`` times, over all processes."""
    for number in range(most):
        with contextlib.suppress(FileExistsError):
            os.close(os.open(FOLDER / f"once.{key}.{number}", os.O_CREAT | os.O_EXCL))
            return True
    return False


class Deeds(NamedTuple):
    """What the payloads of a claim ask for."""

    seconds: float
    answers: dict[str, ValueError]  # by id
    raises: bool


def _deeds(claim: Mapping[str, list[Payload]]) -> Deeds:
    seconds, stuck, raises = 0.0, 0.0, False
    answers: dict[str, ValueError] = {}
    for name, payloads in claim.items():
        for payload in payloads:
            key = payload["key"]
            if "nap" in payload and _first(f"nap.{key}", 1):
                seconds += payload["nap"]
            if "stuck" in payload and _first(f"stuck.{key}", 1):
                stuck = max(stuck, payload["stuck"])
            if payload.get("dead") or _first(f"fails.{key}", payload.get("fails", 0)):
                answers[name] = ValueError(f"{key} fails as told")
                raises = raises or not payload.get("answer")
    return Deeds(min(seconds, MOST_NAP) + stuck, answers, raises)


@contextmanager
def _acting(queue: str, claim: Mapping[str, list[Payload]]) -> Iterator[tuple[list[Span], Deeds]]:
    """Write that a claim starts and how each of its ids ends, whatever is raised in it."""
    spans = [Span(queue, name, payloads) for name, payloads in claim.items()]
    spans = [span for span in spans if span.entered]
    how = ""
    deeds = _deeds({span.name: span.payloads for span in spans})
    try:
        yield spans, deeds
    except BaseException as error:
        how = type(error).__name__
        raise
    finally:
        for span in spans:
            span.end(how or ("answer" if span.name in deeds.answers else "ok"))


def _steps(spans: list[Span], seconds: float) -> Iterator[None]:
    """Counted slices, so that a frozen process has not slept when it goes on; each is written down."""
    for _ in range(round(seconds / STEP)):
        yield
        for span in spans:
            span.beat()


@app.ordered(name="products", queue="products", **ORDERED["products"].options)
def products(claim: dict[str, list[Payload]]) -> dict[str, Any]:
    with _acting("products", claim) as (spans, deeds):
        for _ in _steps(spans, deeds.seconds):
            time.sleep(STEP)
        if deeds.raises:
            raise ValueError("as told")
        return dict(deeds.answers)


@app.ordered(name="accounts", queue="accounts", **ORDERED["accounts"].options)
async def accounts(claim: dict[str, list[Payload]]) -> dict[str, Any]:
    with _acting("accounts", claim) as (spans, deeds):
        for _ in _steps(spans, deeds.seconds):
            await asyncio.sleep(STEP)
        if deeds.raises:
            raise ValueError("as told")
        return dict(deeds.answers)


QUEUES: dict[str, Any] = {"products": products, "accounts": accounts}


def _note_asking() -> None:
    """Know of each claim when it was asked for."""
    fetch = OrderedSource.fetch

    def noted(self: Any, *args: Any) -> Any:
        at = wall()
        brought = fetch(self, *args)
        for unit in brought.units:
            _asked[unit.claim.token] = at
        for token in list(_asked)[:-1000]:
            del _asked[token]
        return brought

    OrderedSource.fetch = noted  # type: ignore[method-assign]


def _note_poison(error: BaseException, facts: dict[str, Any]) -> None:
    """Three deaths of a claimed id are a failure of it without a run."""
    if isinstance(error, PoisonPill) and facts["job"]["queue"] in QUEUES:
        ledger.write("opoison", facts["job"]["queue"], facts["job"]["jid"])


app.error_handlers.append(_note_poison)
_note_asking()
