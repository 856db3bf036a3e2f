"""Jobs that wait for what will not succeed, or not in time, and the steps of workflows: policies, carried out exactly.

Who runs although what it waited for did not succeed writes down what it was told of that: ``needs KEY …`` stands before
its push, ``told KEY finished|over|dead|time`` at its start.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dependants import base, nay
from jobs import acting, app, ledger
from kinds import PATIENCE

from henchman import Failure, Kill, current_job

__all__ = ["JOBS", "WAITS", "add_steps"]

#: what each waits for
WAITS: dict[str, tuple[str, ...]] = {
    "kept": ("base",),
    "patient": ("base",),
    "spared": ("nay",),
    "witness": ("spared",),
    "fallen": ("nay",),
    "ruined": ("wreck",),
    "weary": ("ghost",),
}


def _note_need(key: str) -> None:
    (how,) = current_job().needs.values()
    ledger.write("told", key, how)


@app.job(name="wreck", queue="fast", key="name", once=True)
def wreck(key: str, name: str) -> None:
    with acting(key):
        raise Kill("for good")


@app.job(name="ghost", queue="fast", key="name", once=True)
def ghost(key: str, name: str) -> None:
    """Nobody ever pushes it."""


@app.job(name="kept", queue="fast", key="name", after=base, on_failed="cancel")
def kept(key: str, name: str) -> None:
    with acting(key):
        pass


@app.job(name="patient", queue="fast", key="name", after=base, on_failed="run", wait_at_most=PATIENCE["patient"])
async def patient(key: str, name: str) -> None:
    with acting(key):
        _note_need(key)


@app.job(name="spared", queue="fast", key="name", followed=True, after=nay, on_failed="cancel")
def spared(key: str, name: str) -> None:
    with acting(key):
        pass


@app.job(name="witness", queue="slow", key="name", after=spared, on_failed="run", wait_at_most=PATIENCE["witness"])
def witness(key: str, name: str) -> None:
    with acting(key):
        _note_need(key)


@app.job(name="fallen", queue="fast", key="name", after=nay, on_failed="fail")
def fallen(key: str, name: str) -> None:
    with acting(key):
        pass


@app.job(name="ruined", queue="slow", key="name", after=wreck, on_failed="cancel", on_dead="fail")
def ruined(key: str, name: str) -> None:
    with acting(key):
        pass


@app.job(name="weary", queue="fast", key="name", after=ghost, on_failed="cancel", wait_at_most=PATIENCE["weary"])
def weary(key: str, name: str) -> None:
    with acting(key):
        pass


@app.job(name="step", queue="slow", retry=5, retry_in=1.0)
def step(key: str, fails: int) -> str:
    with acting(key) as attempt:
        if attempt <= fails:
            raise ValueError(f"attempt {attempt} fails as told")
    return f"by {key}"


@app.job(name="stepno", queue="fast")
async def stepno(key: str) -> None:
    with acting(key):
        raise Failure("the answer is no")


@app.job(name="stepdead", queue="fast")
def stepdead(key: str) -> None:
    with acting(key):
        raise Kill("enough")


@app.job(name="stepjoin", queue="fast", retry=0)
def stepjoin(key: str, before: list[str]) -> list[str]:
    """It must find what the steps before it returned."""
    with acting(key):
        told = [current_job().results[name] for name in current_job().results]
        if told != [f"by {one}" for one in before]:
            raise AssertionError(f"{key}: the results of {before} are {told}")
    return before


@app.job(name="stepany", queue="slow", retry=0)
async def stepany(key: str, needs: dict[str, str]) -> None:
    """It must be told how each of the steps before it ended."""
    with acting(key):
        if current_job().needs != needs:
            raise AssertionError(f"{key}: its needs are {current_job().needs}, not {needs}")


@app.job(name="stepoff", queue="fast")
def stepoff(key: str) -> None:
    with acting(key):
        pass


@app.job(name="stepfail", queue="fast")
def stepfail(key: str) -> None:
    with acting(key):
        pass


JOBS: dict[str, Any] = {one.name: one for one in (wreck, kept, patient, spared, witness, fallen, ruined, weary)}
Steps = list[tuple[str, list[str], tuple[str, ...]]]


def add_steps(flow: Any, name: Callable[[str], str], fails: int) -> Steps:
    """Two steps, one that joins them, and every policy on one that says no and on one that dies. ``name`` gives the
    next key of a kind. Each step: its key, the notes of its push, the keys of those that must have ended before."""
    made: Steps = []

    def add(kind: Any, *args: Any, after: tuple[Any, ...] = (), **how: Any) -> Any:
        key, notes = name(kind.name), [f"fails={args[0]}"] if kind is step else []
        made.append((key, notes, tuple(one.name for one in after)))
        return flow.add(kind.call(key, *args), name=key, after=list(after), **how)

    one, other = add(step, fails), add(step, 0)
    joined = add(stepjoin, [one.name, other.name], after=(one, other), results=True)
    no = add(stepno, after=(joined,))
    off = add(stepoff, after=(no,))
    last = add(stepoff, after=(off, one))
    add(stepany, {no.name: "over", one.name: "finished"}, after=(no, one), on_failed="run")
    add(stepany, {last.name: "over"}, after=(last,), on_failed="run")
    failed = add(stepfail, after=(no,), on_failed="fail")
    add(stepoff, after=(failed,), on_dead="cancel")
    dead = add(stepdead, after=(other,))
    add(stepoff, after=(dead,), on_dead="cancel")
    add(stepfail, after=(dead,), on_dead="fail")
    add(stepany, {dead.name: "dead"}, after=(dead,), on_dead="run")
    return made
