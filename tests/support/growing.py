"""One app whose jobs end in every way that might leave something behind in a worker process."""

from __future__ import annotations

import asyncio
from typing import Any

from henchman import App, Failure

app = App()


def _sink(depth: int, number: int, ballast: Any) -> None:
    if depth:
        _sink(depth - 1, number, ballast)
    raise ValueError(f"job {number} failed: {'x' * 2_000}")


@app.job(name="bad", backtrace=True, secret=("pin",))
def bad(number: int, pin: str = "none") -> None:
    """Raise, from a deep place with something large in every frame, a message of its own."""
    _sink(30, number, bytearray(10_000))


@app.job(name="abad", backtrace=True)
async def abad(number: int) -> None:
    """The same, awaited."""
    await asyncio.sleep(0)
    _sink(30, number, bytearray(10_000))


@app.job(name="limited", timeout=3600)
def limited(number: int) -> None:
    """End in time, with a time-out set."""


@app.job(name="alimited", timeout=3600)
async def alimited(number: int) -> None:
    """The same, awaited."""
    await asyncio.sleep(0)


@app.job(name="refused")
def refused(number: int) -> None:
    """A business failure with a long answer, a new one each time."""
    raise Failure(f"{number} " + "no " * 5_000)


@app.job(name="each", ack="each")
def each(number: int) -> None:
    """Settled alone."""


@app.job(name="aeach", ack="each")
async def aeach(number: int) -> None:
    """The same, awaited."""


def _deep(depth: int) -> None:
    if depth:
        _deep(depth - 1)
    raise ValueError("x" * 5_000_000)


@app.job(name="long", backtrace=True)
def long(number: int) -> None:
    """Raise five million characters from a depth of 900 frames."""
    _deep(900)
