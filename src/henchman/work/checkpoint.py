"""How far a job says that it has come: kept under its id for its next run, removed with its good end (``effects.py``).

``runtime``: a ``client.runtime.Runtime``, which stands above this room.
"""

from __future__ import annotations

from typing import Any

from henchman.errors import ArgumentError, JobInterrupted, PayloadError
from henchman.store import jobs
from henchman.wire import jsontext
from henchman.wire.jsontext import EncodeError
from henchman.wire.payload import decode, encode
from henchman.work.unit import Unit

__all__ = ["GOES_ON", "MOST", "load", "noted", "save"]

MOST = 65_536  # bytes
GOES_ON = frozenset({"retry", "snoozed", "interrupted", "dead"})  # endings of a job that goes on, if only by hand


def save(runtime: Any, unit: Unit, jid: str, name: str, state: Any) -> None:
    """Keep ``state`` for a later run of the job; see ``CurrentJob.checkpoint``."""
    _check(unit, name)
    try:
        text = jsontext.dumps(state)
    except EncodeError as error:
        raise ArgumentError(error.text(f"the checkpoint of {name}")) from None
    if len(text) > MOST:
        raise ArgumentError(
            f"the checkpoint of {name} has {len(text):,} bytes, more than {MOST:,}: keep what is large elsewhere, and "
            "here where it lies"
        )
    unit.checkpoint = True  # also when the answer is lost: it may be there
    if not runtime.connections.run(jobs.save_checkpoint(runtime.keys, unit.flight.key, unit.payload, jid, text)):
        raise JobInterrupted("another process has this job: its checkpoint was not kept")


def load(runtime: Any, unit: Unit, jid: str, name: str) -> Any:
    """What was kept last; None when nothing was."""
    _check(unit, name)
    text = runtime.connections.run(jobs.load_checkpoint(runtime.keys, jid))
    if text is None:
        return None
    unit.checkpoint = True
    try:
        return jsontext.loads(text)
    except ValueError as error:
        key = runtime.keys.checkpoint(jid)
        raise PayloadError(f"the checkpoint in {key} is not JSON ({error}); delete it to start anew") from None


def noted(stored: bytes) -> bytes:
    """``stored``, the payload of a job that goes on, with the note that it keeps a checkpoint: whoever ends it removes
    that, though the last run did not ask for it. As it is, where another program uses the field ``hm``."""
    job = decode(stored)
    ours = job.get("hm", {})
    return encode(job | {"hm": ours | {"checkpoint": True}}) if isinstance(ours, dict) else stored


def _check(unit: Unit, name: str) -> None:
    if unit.source is not None:
        raise ArgumentError(f"{name}: a claim of an ordered queue has no checkpoint; its payloads say where it is")
