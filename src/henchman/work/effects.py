"""What must happen in the same breath as a job's end: a pure function of its payload and of how it ends.

A closed list; each kind is carried out by ``lib/effects.lua`` under the same name and is idempotent. Whoever ends a
job (acker, stager, supervisor, command line, console) passes this list to the script, so that no crash can come
between. Ends that no script of ours sees (a Ruby worker, ``UNLINK``) have no effects: what waits for one needs an age.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from henchman.kernel.text import as_shown, described
from henchman.store.keys import Keys
from henchman.wire import payload as payloads
from henchman.wire.payload import backtrace_of, decode
from henchman.work.limits import limit_effects
from henchman.work.locks import LOCKED, as_remembered, freed, key_of, lock_effects
from henchman.work.outcome import Outcome
from henchman.work.unit import Unit

__all__ = [
    "FINAL",
    "KINDS",
    "NOTHING",
    "STATUS",
    "EndingFacts",
    "attempt_of",
    "batch_of",
    "effects",
    "encoded",
    "facts_of",
    "finished",
    "heir_of",
    "keeps_result",
    "of_payload",
    "overdue_dead",
    "overdue_facts",
    "step_effects",
    "subjects_of",
    "tracked",
]

#: ``uncancel``: the cancellation of this jid has been carried out, the note of it can go. ``cron_done``: the job of
#: this cron's tick has ended, the next may come; how is noted. ``uniterate``: nobody will ask any more where this job
#: stands, an iterable one or one with a checkpoint; a dead one may be retried by hand and keeps its place. ``result``:
#: keep what it returned or raised, and wake who waits for it. ``unlock``, ``unrun``: it holds its business key no
#: longer, the next in line does; who waits for its success hears of its end. ``unslot``: its place of a limit is free,
#: the next in line has it. ``spent``: it took other points than estimated. ``follow``: it is dead, and holds its key.
#: ``step``: the same for who waits for a step of a workflow. ``relock``: it holds it again, else ``move.lua`` leaves it
#: where it is. ``unlatest``: its newest arguments are stored, or not needed any more. ``undebounce``: the burst of
#: pushes that it ran for is over. ``step_result``: its batch keeps what it returned or raised, as long as it is a
#: member: so ahead of ``track``: count it in its batch, and write the change down. ``said``: progress or a message.
KINDS = (
    *("uncancel", "cron_done", "uniterate", "result", "unlock", "unrun", "relock", "unlatest", "undebounce"),
    *("unslot", "spent", "follow", "step", "step_result", "track", "said"),
)

_KEPT = frozenset({"dead", "kept", "invalid", "poisoned"})  # in the dead set, or with the dead of its batch
_OVER = frozenset({"done", "failed", "discarded", "gone", "expired", "cancelled", "deleted"})
#: The endings after which a job does not go on by itself.
FINAL = _KEPT | _OVER

#: what a tracked job is after each ending, and after what is no ending: staged, rescued, started
STATUS: Final = {
    "done": "finished",
    "failed": "failed",
    **dict.fromkeys(("gone", "dead", "kept", "invalid", "poisoned"), "error"),
    **dict.fromkeys(("discarded", "cancelled", "deleted"), "cancelled"),
    "expired": "expired",
    "retry": "retrying",
    **dict.fromkeys(("snoozed", "deferred"), "scheduled"),
    **dict.fromkeys(("released", "interrupted", "rescued", "staged", "revived"), "enqueued"),
    "started": "working",
    "held": "blocked",  # its batch is paused
}

Effect = tuple[str, ...]


class EndingFacts(NamedTuple):
    """What else is known of an ending: who ran it, which attempt it was, and facts for the history (plain JSON).

    ``cancelled``: somebody cancelled it, however it ended then; the mark of that ends with it. ``checkpoint``: it keeps
    how far it has come, or found that it did; the payload of a job that goes on notes that. ``latest``: it ran with
    newer arguments than it was pushed with, and is stored with them. ``spent``: points of its limits, where it said so.
    ``heir``: the jid of who began in its places of limits.
    """

    identity: str = ""
    attempt: int = 0
    detail: Mapping[str, Any] = {}
    cancelled: bool = False
    checkpoint: bool = False
    latest: bool = False
    spent: int | None = None
    heir: str = ""


NOTHING = EndingFacts()


def batch_of(job: Mapping[str, Any]) -> str:
    """The batch that a job is a member of; empty when it is of none.

    The id of a batch holds no colon: with one, its key would be that of something else.
    """
    ours = job.get("hm")
    batch = ours.get("batch") if isinstance(ours, dict) else None
    return batch if isinstance(batch, str) and ":" not in batch else ""


def subjects_of(job: Mapping[str, Any]) -> list[str]:
    """What of a job can be paused beside its queue, as ``store/pauses.py`` calls it: its batch, its class, its tags."""
    tags = job.get("tags")
    named = [f"tag:{one}" for one in (tags if isinstance(tags, list) else ())]
    return [*filter(None, (batch_of(job),)), f"class:{job.get('class')}", *named]


def keeps_result(job: Mapping[str, Any]) -> bool:
    """Whether the batch of a job keeps what the job returns."""
    ours = job.get("hm")
    return isinstance(ours, dict) and ours.get("results") is True and batch_of(job) != ""


def effects(keys: Keys, job: Mapping[str, Any], ending: str, told: EndingFacts = NOTHING) -> tuple[Effect, ...]:
    """The effects of ``job`` ending as ``ending``, in order. What ``hm`` says in a way that nobody can read counts as
    not said: the job runs, and ends, without it.
    """
    jid, ours = job.get("jid"), job.get("hm")
    if not isinstance(jid, str):
        return ()
    said = ours if isinstance(ours, dict) else {}
    found: list[Effect] = []
    if ending in FINAL:
        cancelled = ending == "cancelled" or told.cancelled
        if cancelled:
            found.append(("uncancel", jid))
        if isinstance(said.get("cron"), str):
            found.append(("cron_done", said["cron"], jid, ending))
        if ending in _OVER and (cancelled or said.get("iterable") is True):  # cancel.lua leaves a flag for any job
            found.append(("uniterate", keys.iteration(jid)))
        if ending in _OVER and (told.checkpoint or said.get("checkpoint") is True):
            found.append(("uniterate", keys.checkpoint(jid)))
        burst = said.get("debounce")
        if isinstance(burst, list) and [type(one) for one in burst] == [str, str]:
            found.append(("undebounce", *burst, jid))
        ttl = payloads.seconds(said.get("result_ttl"))
        if ttl is not None:
            found.append(_result(keys, jid, ttl, ending, told))
    if "key" in said:
        found += lock_effects(job, ending, latest=told.latest)
    if "limits" in said and ending in LOCKED and ending != "trimmed":
        found += limit_effects(job, told.spent, told.heir)
    if "step" in said:
        found += step_effects(job, ending)
    if ending == "trimmed":  # it had ended before, and was counted then
        return (*found, *([("uniterate", keys.iteration(jid))] if said.get("iterable") is True else ()))
    if "batch" in said or said.get("track") is True:
        if ending in FINAL and keeps_result(job):
            found.append(_step_result(jid, batch_of(job), ending, told))
        found.append(_track(jid, batch_of(job), ending, told))
    return tuple(found)


def step_effects(job: Mapping[str, Any], ending: str) -> list[Effect]:
    """That a step of a workflow has ended, or lives again."""
    ours, batch = job.get("hm"), batch_of(job)
    step = ours.get("step") if isinstance(ours, dict) else None
    if not batch or not isinstance(step, str):
        return []
    known = {"done": "s", "failed": "f", "revived": "", "trimmed": "x", **dict.fromkeys(_KEPT, "d")}
    letter = known.get(ending, "x" if ending in _OVER else None)
    return [] if letter is None else [("step", batch, step, letter)]


def _track(jid: str, batch: str, ending: str, told: EndingFacts) -> Effect:
    detail = {"ending": ending, **told.detail}
    reason = _reason(detail) if STATUS[ending] in ("failed", "error") else ""  # others are not counted by it
    shown = text(detail)
    if len(shown) > _MOST and "result" in detail:
        shown = text(
            {**detail, "result": f"({len(shown):,} bytes)"}
        )  # whole where results are kept, not in the history
    return ("track", batch, jid, STATUS[ending], str(told.attempt), told.identity, shown, reason)


def _reason(detail: Mapping[str, Any]) -> str:
    words = " ".join(str(detail.get("message") or detail.get("reason") or detail["ending"]).split())[:200]
    return words.encode("utf-8", "replace").decode()


def _result(keys: Keys, jid: str, ttl: float, ending: str, told: EndingFacts) -> Effect:
    known = {name: told.detail[name] for name in _OF_RESULT if name in told.detail}
    kept = text({"status": STATUS[ending], **known})
    return ("result", keys.result(jid), str(max(int(ttl * 1000), 1)), kept, keys.done(jid))


_MOST = 65_536  # bytes of one entry, and of one result that a batch keeps
_MESSAGE = 1000  # characters that a batch keeps of why there is no result
_OF_RESULT = ("result", "reason", "error_class", "message", "traceback")


def _step_result(jid: str, batch: str, ending: str, told: EndingFacts) -> Effect:
    """``=`` and what it returned as JSON, or ``!`` and how it ended without a result that can be kept."""
    status, detail = STATUS[ending], told.detail
    message = str(detail.get("message") or detail.get("reason") or "")
    if status == "finished" and not message:
        returned = msgspec.json.encode(detail.get("result"))
        if len(returned) <= _MOST:
            return ("step_result", batch, jid, "=" + returned.decode())
        message = f"it returned {len(returned):,} bytes of JSON, and a batch keeps at most {_MOST:,} of a job"
    facts = {"status": status, "message": message[:_MESSAGE], "error_class": detail.get("error_class")}
    return ("step_result", batch, jid, "!" + text({name: value for name, value in facts.items() if value}))


def text(facts: Mapping[str, Any]) -> str:
    """Facts as JSON; what cannot be written as such is written as it is shown."""
    try:
        return msgspec.json.encode(facts).decode()
    except Exception:  # of values that are anybody's
        return msgspec.json.encode({name: _shown(value) for name, value in facts.items()}).decode()


def _shown(value: Any) -> Any:
    try:
        msgspec.json.encode(value)
    except Exception:
        return as_shown(value, 1000).encode("utf-8", "replace").decode()
    return value


def encoded(keys: Keys, job: Mapping[str, Any], ending: str, told: EndingFacts = NOTHING) -> bytes:
    """The same as the scripts read it: JSON, or nothing at all when there are none; a plain end of a job with a key as
    ``lib/key_ends.lua`` reads it. Never raises: one unit that cannot be written down must not stop its neighbours."""
    if "hm" not in job and ending != "cancelled" and not told.cancelled and not told.checkpoint:
        return b""
    try:
        if ending == "done" and not (told.cancelled or told.checkpoint) and (short := _key_end(job)):
            return short
        found = effects(keys, job, ending, told)
        return msgspec.json.encode(found) if found else b""
    except Exception as error:  # a defect of ours, or something in the job that no payload can hold
        return _least(job, ending, told, error)


#: what says no more of a job's end than that it gives its key back
_KEYED = frozenset(
    {"key", "once_for", "conflict", "delay", "timeout", "expires", "deadline", "secret"}
    | {"needs", "on_failed", "on_dead", "wait_at_most", "met"}
)


def _key_end(job: Mapping[str, Any]) -> bytes:
    """``done``, where nothing follows but that its key is free; the server takes a third of the time for it."""
    hm = job.get("hm")
    key = key_of(job) if isinstance(hm, dict) and _KEYED.issuperset(hm) else None
    if key is None:
        return b""
    jid: str = job["jid"]
    if not (jid.isascii() and jid.isalnum()):
        return b""
    phases = freed(key, "done")
    packed = as_remembered(key, jid) if "o" in phases or "f" in phases else b""
    head = f"*{phases} {key.once_for} {key.scope}\n{jid}"
    return b"%b=%b%b" % (head.encode(), packed, key.name.encode()) if packed else f"{head} {key.name}".encode()


def _least(job: Mapping[str, Any], ending: str, told: EndingFacts, error: Exception) -> bytes:
    """That the job has ended, at least, so that its batch counts it, and why nothing else is known of its end."""
    reason = f"its end could not be written down: {described(error)}".encode("utf-8", "replace").decode()
    detail = {"reason": reason}
    try:
        jid, batch = job.get("jid"), batch_of(job)
        if not isinstance(jid, str) or not batch:
            return b""
        facts = EndingFacts(told.identity, told.attempt, detail)
        result = [_step_result(jid, batch, ending, facts)] if ending in FINAL and keeps_result(job) else []
        return msgspec.json.encode([*result, _track(jid, batch, ending, facts)])
    except Exception:  # half a surrogate pair in an id: nothing of ours is called by that
        return b""


def of_payload(keys: Keys, payload: bytes, ending: str, told: EndingFacts = NOTHING) -> bytes:
    """``encoded`` for a payload as it is stored; nothing for one that cannot be read. Not for ``cancelled``."""
    if b'"hm"' not in payload:
        return b""
    try:
        job = decode(payload)
    except Exception:  # whatever is wrong with it, it has no effects
        return b""
    return encoded(keys, job, ending, told)


_LINES = 60  # of a traceback
_TEXT = 10_000
_WORD = re.compile(r'[^\s"\\]+')


def tracked(job: Mapping[str, Any]) -> bool:
    """Whether anything of this job is written down: it is in a batch, tracked, or keeps its result."""
    ours = job.get("hm")
    return isinstance(ours, dict) and ("batch" in ours or ours.get("track") is True or "result_ttl" in ours)


def attempt_of(job: Mapping[str, Any]) -> int:
    """1 in the first run, 2 in the first retry."""
    count = payloads.count(job.get("retry_count"))
    return 1 if count is None else count + 2


#: what says no more of a job's end than that it gives its places back
_LIMITED = frozenset({"limits", "max_wait", "delay", "timeout", "expires", "deadline", "secret"})


def _places_end(unit: Unit, job: Mapping[str, Any]) -> bytes:
    """``done``, where nothing follows but that its places are free, or its heir's: the server takes many together."""
    hm, jid, heir = job.get("hm"), job.get("jid"), heir_of(unit)
    if not isinstance(hm, dict) or "limits" not in hm or not _LIMITED.issuperset(hm) or unit.source is not None:
        return b""
    begins = b"" if unit.claim is None else unit.claim.ends
    if not begins or not isinstance(jid, str) or not (jid.isalnum() and (jid + heir).isascii()):
        return b""
    return b"%b%b %b" % (begins, jid.encode(), heir.encode()) if not heir or heir.isalnum() else b""


def heir_of(unit: Unit) -> str:
    """The jid of who began in the places of ``unit`` as it ended; empty: nobody."""
    heir: str = getattr(unit, "heir", "")
    return heir


_MEMBER = frozenset({"batch", "batch_expires", "delay", "track", "secret", "deadline"}) | frozenset(
    {"needs", "on_failed", "on_dead", "wait_at_most", "met"}  # what it waited for
)


def finished(unit: Unit, job: Mapping[str, Any]) -> bytes:
    """The effect of a plain run that returned nothing, as ``lib/batch.lua`` reads it, of a job with a key that is not
    tracked ``lib/key_ends.lua``, with places ``lib/place_ends.lua``; empty: ask ``effects.encoded``.

    Nearly every such job ends so, and this takes an eighth of the time.
    """
    if not tracked(job):
        return _key_end(job) or _places_end(unit, job)
    hm, jid, elapsed = job["hm"], job.get("jid"), unit.elapsed
    batch = hm.get("batch", "")
    if elapsed is None or not _MEMBER.issuperset(hm) or not isinstance(jid, str) or not isinstance(batch, str):
        return b""
    who = unit.flight.identity
    if not (jid and (jid + batch).isalnum() and (jid + batch + who).isascii()) or not _WORD.fullmatch(who):
        return b""
    return (
        f'+{batch} {attempt_of(job)} {who} {jid} {{"ending":"done","started":{time.time() - elapsed:.6f},'
        f'"elapsed":{elapsed:.6f}}}'
    ).encode()


def facts_of(unit: Unit, outcome: Outcome, job: Mapping[str, Any]) -> EndingFacts:
    """The facts of ``outcome``; a run that did not start has no times."""
    detail: dict[str, Any] = {"cause": cause} if (cause := outcome.cause) else {}
    if outcome.reason:
        detail["reason"] = outcome.reason[:_TEXT]
    if outcome.error is not None:
        detail |= {"error_class": type(outcome.error).__name__, "message": outcome.reason[:_TEXT]}
        if outcome.ending not in ("failed", "discarded", "cancelled", "expired", "snoozed", "released"):
            detail["traceback"] = backtrace_of(outcome.error, _LINES)
    if outcome.result is not None:
        detail["result"] = outcome.result
    if unit.elapsed is not None:
        detail |= {"started": round(time.time() - unit.elapsed, 6), "elapsed": round(unit.elapsed, 6)}
    latest = unit.newest is not unit.payload
    facts = EndingFacts(unit.flight.identity, attempt_of(job), detail, unit.cancelled, unit.checkpoint, latest)
    return facts._replace(spent=unit.spent, heir=heir_of(unit))


# A job whose deadline passed while it waited: one that had not begun has expired, another one is dead.

_OVERDUE: Final = "JobDeadline"


def overdue_facts(job: Mapping[str, Any], waited: str) -> EndingFacts:
    """How a job ends whose deadline passed while it waited, and what for, as its batch and history are told."""
    last = job.get("error_class")
    after = f"; it had failed with {last}" if isinstance(last, str) and last else ""
    message = f"its deadline passed while it waited {waited}{after}"
    return EndingFacts(detail={"cause": "deadline", "error_class": _OVERDUE, "message": message, "reason": message})


def overdue_dead(job: dict[str, Any], queue: str, stamp: bytes, facts: EndingFacts) -> dict[str, Any]:
    """``job`` as the dead set has it from the moment ``stamp`` on: what its last run failed with stays."""
    made: dict[str, Any] = {"failed_at": msgspec.json.decode(stamp), "retry_count": 0, "error_class": _OVERDUE}
    made["error_message"] = facts.detail["message"]
    return made | job | {"queue": queue, "error_cause": "deadline"}
