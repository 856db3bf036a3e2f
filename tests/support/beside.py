"""An app that the code of two versions can run: public names alone. What its jobs do stands in ``$BESIDE_TRACE``.

``$BESIDE_WATCH``: seconds for which the lifeline watches a dead process, instead of 15.
"""

from __future__ import annotations

import importlib
import os
import time
from pathlib import Path
from typing import Any

import henchman
from henchman import App, Failure

app = App(lease=5, heartbeat=0.5, concurrency=4)
CODE = "old" if "old-code" in str(henchman.__file__) else "new"
lifeline: Any = importlib.import_module(f"henchman.worker.{'lifeline' if CODE == 'old' else 'rescue'}")
lifeline.WATCH = float(os.environ.get("BESIDE_WATCH", lifeline.WATCH))


def note(*words: object) -> None:
    """One line, written in one piece, with the code and the process that wrote it."""
    line = " ".join(map(str, (*words, CODE, os.getpid(), repr(time.time())))) + "\n"
    file = os.open(os.environ["BESIDE_TRACE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, line.encode())
    os.close(file)


@app.job(name="plain")
def plain(name: str, seconds: float = 0.0) -> None:
    first = f"start {name} " not in Path(os.environ["BESIDE_TRACE"]).read_text(encoding="utf-8")
    note("start", name)
    time.sleep(seconds if first else 0.0)
    note("end", name)


@app.job(name="flaky", retry=5, retry_in=0.3)
def flaky(name: str) -> None:
    if f"raise {name} " not in Path(os.environ["BESIDE_TRACE"]).read_text(encoding="utf-8"):
        note("raise", name)
        raise ValueError(name)
    note("end", name)


@app.job(name="member")
def member(name: str, number: int) -> None:
    time.sleep(0.02)  # long enough for the others to take some
    if number % 10 == 7:
        note("end", name)
        raise Failure("not this one")
    note("end", name)


@app.job(name="completed")
def completed(batch: str) -> None:
    note("completed", batch)


@app.ordered(queue="sync", name="sync", claim_size=3)
def sync(claim: dict[str, list[Any]]) -> None:
    for entity in claim:
        note("begin", entity)
    time.sleep(0.02)
    for entity, payloads in claim.items():
        for one in payloads:
            note("did", entity, one)
        note("leave", entity)


def push() -> None:
    """Push everything once, from the code that runs this, under names that begin with its word."""
    for number in range(60):
        plain.enqueue(f"{CODE}-p{number}", 0.02)
        flaky.using(delay=0.5 if number % 3 else 0).enqueue(f"{CODE}-f{number}")
    with app.batch(f"from {CODE}", on_complete=completed):
        member.enqueue_many([(f"{CODE}-m{number}", number) for number in range(60)])
    for score in range(10):
        for entity in range(12):
            sync.push(f"{CODE}-e{entity}", score, score=score)


if __name__ == "__main__":
    push()
