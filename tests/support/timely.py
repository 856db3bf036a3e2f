"""An app whose jobs have to do with time, and a producer of them: ``python -m support.timely PREFIX AT``.

``AT`` is the Unix time, by the clock of the server, that ``at=`` names. Each run writes a line to the trace.
"""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

from henchman import App, Snooze, current_job
from support.acting import _held, write

app = App()
#: what runs of each producer, at once or within two seconds
SOON = ("brief", "pushed", "later", "at", "flaky", "again", "member", "added", "doomed", "ordered", "ordered-later")


@app.job(name="note")
def note(name: str) -> None:
    """It ran."""
    write("ran", name)


@app.job(name="brief", expires=60)
def brief(name: str) -> None:
    """It ran in time."""
    write("ran", name)


@app.job(name="flaky", retry=5, retry_for=3600, retry_in=0.05)
def flaky(name: str) -> None:
    """Fails twice: the two times may be judged by two hosts."""
    if current_job().attempt < 3:
        raise ValueError("not yet")
    write("ran", name)


@app.job(name="again")
def again(name: str) -> None:
    """Put off once."""
    if _first("put-off", name):
        raise Snooze(0.05)
    write("ran", name)


def _first(event: str, name: str) -> bool:
    """Whether ``name`` has had no ``event`` so far; it has now."""
    first = f"{event} {name} " not in Path(os.environ["ACTING_TRACE"]).read_text(encoding="utf-8")
    if first:
        write(event, name)
    return first


@app.job(name="doomed", retry=0)
def doomed(name: str) -> None:
    """Goes to the dead set."""
    write("ran", name)
    raise ValueError("as told")


@app.ordered(queue="entities", retry_in=2.0, claim_size=1)
def entities(claim: dict[str, list[str]]) -> None:
    """They ran, in this order; what is called ``shaky…`` fails at first, ``hold…`` waits to be let go."""
    for names in claim.values():
        for name in names:
            if name.startswith("shaky") and _first("failed", name):
                raise ValueError("not yet")
            if name.startswith("hold"):
                write("holds", name)
                _held(60.0)
            write("ran", name)


def produce(prefix: str, at: float) -> None:
    """Push each of ``SOON``, and ``far``, which is due an hour after ``at``."""
    moment = datetime.fromtimestamp(at, UTC)
    brief.enqueue(f"{prefix}-brief")
    note.using(expires=60).enqueue(f"{prefix}-pushed")
    note.using(delay=1, expires=60).enqueue(f"{prefix}-later")
    note.using(at=moment + timedelta(seconds=2)).enqueue(f"{prefix}-at")
    note.using(at=moment + timedelta(hours=1)).enqueue(f"{prefix}-far")
    flaky.enqueue(f"{prefix}-flaky")
    again.enqueue(f"{prefix}-again")
    doomed.enqueue(f"{prefix}-doomed")
    with app.batch("brief", expires=60) as batch:
        note.enqueue(f"{prefix}-member")
        batch.add(note, [(f"{prefix}-added",)])
    entities.push(f"{prefix}-1", f"{prefix}-ordered")
    entities.push(f"{prefix}-2", f"{prefix}-ordered-later", delay=1)
    app.close()


if __name__ == "__main__":
    produce(sys.argv[1], float(sys.argv[2]))
