"""Jobs that wait for others, and those that they wait for: by equal key, or by handle."""

from __future__ import annotations

from typing import Any

from jobs import acting, app, die_first

from henchman import Failure, current_job

__all__ = ["JOBS", "NEEDS"]


def _fail_first(attempt: int, fails: int) -> None:
    if attempt <= fails:
        raise ValueError(f"attempt {attempt} fails as told")


@app.job(name="base", queue="slow", retry=5, retry_in=1.0, key="name", once=True)
def base(key: str, name: str, fails: int) -> None:
    with acting(key) as attempt:
        _fail_first(attempt, fails)


@app.job(name="riser", queue="fast", key="name", once=True)
async def riser(key: str, name: str) -> None:
    with acting(key):
        die_first(key)


@app.job(name="nay", queue="fast", key="name", once=True)
def nay(key: str, name: str) -> None:
    with acting(key):
        raise Failure("the answer is no")


@app.job(name="first", queue="fast", retry=5, retry_in=1.0, followed=True)
def first(key: str, fails: int) -> None:
    with acting(key) as attempt:
        _fail_first(attempt, fails)


@app.job(name="heir", queue="fast", key="name", after=base)
def heir(key: str, name: str) -> None:
    with acting(key):
        pass


@app.job(name="heirs", queue="slow", key="name", after=[base, riser])
async def heirs(key: str, name: str) -> None:
    with acting(key):
        pass


@app.job(name="anyway", queue="fast", key="name", after=nay, on_failed="run")
def anyway(key: str, name: str) -> None:
    with acting(key):
        if current_job().needs != {"nay": "over"}:
            raise AssertionError(f"{key}: its needs are {current_job().needs}")


@app.job(name="second", queue="fast")
def second(key: str) -> None:
    """Pushed after a handle, or two."""
    with acting(key):
        pass


JOBS: dict[str, Any] = {one.name: one for one in (base, riser, nay, first, heir, heirs, anyway, second)}
NEEDS: dict[str, tuple[str, ...]] = {"heir": ("base",), "heirs": ("base", "riser"), "anyway": ("nay",)}
