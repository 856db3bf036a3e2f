"""One claim: some ids of an ordered queue, held under one token by one process, and how each of them ends.

The arithmetic of retries is Lowkiq's (docs/lowkiq.md).
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from henchman.client.push import Handle, Pushed
from henchman.errors import ArgumentError, Discard, Failure, JobCancelled, JobInterrupted, JobShutdown, Kill, Snooze
from henchman.kernel.middleware import takes
from henchman.kernel.text import described, words_of
from henchman.ordered.definition import OrderedOptions
from henchman.ordered.push import OrderedPush, OrderedPushed
from henchman.store.ordered import ClaimedId, Verdict
from henchman.wire.times import answered_seconds
from henchman.work.effects import STATUS, facts_of, text
from henchman.work.outcome import Outcome
from henchman.work.source import Teller
from henchman.work.unit import Unit

__all__ = ["DEATHS", "Claim", "OrderedRetryPolicy", "encoded", "record_endings", "retry_delay", "shown"]

DEATHS = 3  # of processes that had an id in hand, the last with nothing beside it: a failure of the id

_MOST_RECORDS = 500
_MESSAGE_MOST = 10_000


class Claim:
    """``token`` rises from claim to claim of a queue. ``retry_count``: -1 when its ids have not failed; ``suspect``:
    processes died with it, it runs with nothing beside it. ``refused``: ids that cannot run, and why; ``verdicts``:
    how each id ends, once that is known, and ``endings`` in words, with the error."""

    __slots__ = ("endings", "ids", "refused", "retry_count", "suspect", "token", "verdicts")

    def __init__(self, token: int, ids: list[ClaimedId]) -> None:
        self.token = token
        self.ids = ids
        first = ids[0]  # an id that failed or crashed before is claimed alone
        self.retry_count = first.retry_count
        self.suspect = first.crashes == DEATHS - 1
        self.refused: dict[bytes, BaseException] = {}
        self.verdicts: list[Verdict] | None = None
        self.endings: dict[bytes, tuple[str, BaseException | None]] | None = None

    @property
    def records(self) -> list[str]:
        """The jids of the records that hear what its handler says: the first 500 of its payloads, where tracked."""
        return [jid.decode() for one in self.ids for jid in one.jids if jid][:_MOST_RECORDS]

    def __repr__(self) -> str:
        return f"Claim({self.token}, {len(self.ids)} ids)"

    def all(self, verdict: str, delay: float = 0.0) -> list[Verdict]:
        """The same verdict for every id."""
        make, token = Verdict._make, self.token  # half the time of naming each field, and this is the hot path
        return [make((token, one.id, verdict, delay, 0, "")) for one in self.ids]

    def by_ending(self, ending: str, delay: float | str, defect: bytes) -> list[Verdict]:
        """The verdicts on a claim that ended as a whole and was not judged. ``defect``: why it could not be judged."""
        if ending in ("done", "cancelled", "discarded"):
            return self.all("done")
        if ending in ("released", "interrupted"):
            return self.all("release")
        if ending in ("deferred", "snoozed"):
            return self.all("snooze", float(delay))
        error = defect.decode("utf-8", "replace") or f"it could not be judged ({ending})"  # nothing is dropped for that
        return [Verdict(self.token, one.id, "retry", 60.0, one.retry_count + 1, error) for one in self.ids]

    def errors(self, result: Any, problem: BaseException | None) -> dict[bytes, BaseException]:
        """The ids that failed, and why: all when the handler raised, else those for which it answered an exception,
        or something that is none: an answer that cannot be understood counts as failed, or the payload would be gone.
        """
        found = dict(self.refused)
        answers: Mapping[bytes, BaseException] = {}
        if problem is None:
            try:
                answers = self._read(result)
            except BaseException as error:  # the answer is an object of user code: it may raise anything when read
                problem = error
        for one in self.ids:
            failed = problem or answers.get(one.id)
            if failed is not None and one.payloads:
                found.setdefault(one.id, failed)
        return found

    def _read(self, result: Any) -> dict[bytes, BaseException]:
        """The handler's answer, by id; ArgumentError when it does not name the ids."""
        if result is None or isinstance(result, _NO_ANSWER):
            return {}
        if isinstance(result, BaseException) or (isinstance(result, type) and issubclass(result, BaseException)):
            return dict.fromkeys((one.id for one in self.ids), _exception(result))  # as if it had been raised
        if not isinstance(result, Mapping):
            raise ArgumentError(f"the handler answered {_kind(result)}; {_WAY_OUT}")
        answers = {encoded(name): answer for name, answer in result.items() if answer is not None}
        ids = {one.id for one in self.ids}
        strangers = [name for name in answers if name not in ids]
        named = {encoded(name) for name in result}
        read = {name: _exception(answer) for name, answer in answers.items() if name in ids}
        if strangers:  # it may mean one of the ids that it does not name
            problem = f"the handler answered for {shown(strangers[0])!r}, which is no id of this claim; {_WAY_OUT}"
            read |= {name: ArgumentError(problem) for name in ids - named}
        return read


#: results of pushes: a handler that returns one says nothing of its ids
_NO_ANSWER = (OrderedPush, OrderedPushed, Handle, Pushed)
_WAY_OUT = "it may return nothing, or a dict of exceptions by id, without those that succeeded"


def _kind(answer: Any) -> str:
    """What kind of thing an answer is; not its text, which may be anything."""
    return f"an object of type {type(answer).__name__}"


def _exception(answer: Any) -> BaseException:
    """An answer for one id as an exception; a class of exceptions (``Kill``) as one of them."""
    if isinstance(answer, BaseException):
        return answer
    if not (isinstance(answer, type) and issubclass(answer, BaseException)):
        return ArgumentError(f"the handler answered {_kind(answer)} for this id; {_WAY_OUT}")
    try:
        return answer()
    except Exception as error:
        return ArgumentError(f"the handler answered the class {answer.__name__} for this id, not one of them: {error}")


def encoded(name: Any) -> bytes:
    """An id as it is stored; the reverse of ``shown``."""
    return str(name).encode("utf-8", "surrogateescape")


def shown(name: bytes) -> str:
    """An id as handlers and people get it; one that is no UTF-8 keeps its bytes."""
    return name.decode("utf-8", "surrogateescape")


# --- how each id of a claim ends --------------------------------------------------------------------------------------

#: from bad to good: the outcome of a claim is that of its worst id
_WORST = ("dead", "retry", "snoozed", "released", "cancelled", "failed", "discarded", "done")
_SETTLED = {Failure: "failed", Discard: "discarded", JobCancelled: "cancelled"}
_NOT_REPORTED = (*_SETTLED, Snooze, JobShutdown, JobInterrupted)


def retry_delay(count: int) -> float:
    """Seconds until the next try after failure number ``count + 1``: ``count**4 + 15 + rand(30) * (count + 1)``."""
    return count**4 + 15 + random.randrange(30) * (count + 1)  # noqa: S311 - spreads load, hides nothing


class OrderedRetryPolicy:
    """Judges the claims of one definition."""

    def __init__(self, options: OrderedOptions) -> None:
        self._options = options

    def ended(self, claim: Claim, job: dict[str, Any], errors: dict[bytes, BaseException], teller: Teller) -> Outcome:
        """Write the verdicts into ``claim``, report the errors, call the hooks; the outcome of the claim as a whole."""
        for error in {id(one): one for one in errors.values() if not isinstance(one, _NOT_REPORTED)}.values():
            facts = {"context": "job raised", "job": job, "queue": job["queue"], "message": _cut(words_of(error))}
            teller.report(error, facts)  # once, however many ids it is the answer for
        ended = [self._of_id(claim.token, one, errors.get(one.id), teller) for one in claim.ids]
        claim.verdicts = [verdict for verdict, _ in ended]
        claim.endings = {verdict.id: (word, errors.get(verdict.id)) for verdict, word in ended}
        given_up = [one for one, (verdict, _) in zip(claim.ids, ended, strict=True) if verdict.verdict == "to_morgue"]
        if given_up:
            self._exhausted(given_up, job, errors, teller)
        ending = min((word for _, word in ended), key=_WORST.index)
        worst = [verdict for verdict, word in ended if word == ending]  # what the outcome speaks of
        name = worst[0].id
        reason = _reason(claim, errors, name) if errors else ""
        return Outcome(ending, delay=min(one.delay for one in worst), reason=reason, error=errors.get(name))

    def _of_id(self, token: int, one: ClaimedId, error: BaseException | None, teller: Teller) -> tuple[Verdict, str]:
        """The verdict on one id, and the ending that an outcome calls it."""
        if error is None:
            return Verdict(token, one.id, "done"), "done"
        for kind, word in _SETTLED.items():
            if isinstance(error, kind):
                return Verdict(token, one.id, "done"), word
        if isinstance(error, Snooze):
            return Verdict(token, one.id, "snooze", error.delay), "snoozed"
        if isinstance(error, (JobShutdown, JobInterrupted)):
            return Verdict(token, one.id, "release"), "released"
        count, message = one.retry_count + 1, _message(error)
        if isinstance(error, Kill) or count >= self._options.max_retries:
            return Verdict(token, one.id, "to_morgue", error=message), "dead"
        return Verdict(token, one.id, "retry", self._delay(count, error, teller), count, message), "retry"

    def _delay(self, count: int, error: BaseException, teller: Teller) -> float:
        asked: Any = self._options.retry_in
        if callable(asked):
            asked = teller.call(asked, *(count, error)[: takes(asked, 2)])
        seconds = answered_seconds(asked)
        return retry_delay(count) if seconds is None else seconds

    def _exhausted(
        self, given_up: list[ClaimedId], job: dict[str, Any], errors: dict[bytes, BaseException], teller: Teller
    ) -> None:
        items = []
        for one in given_up:
            score, raw = one.payloads[0]
            payload, error = _readable(raw), errors[one.id]
            items.append({"id": shown(one.id), "payloads": [[payload, score]], "error": _message(error)})
            teller.died({**job, "args": [{shown(one.id): [payload]}], "error_message": _message(error)}, error)
        if self._options.retries_exhausted is not None:
            teller.call(self._options.retries_exhausted, items)


def _reason(claim: Claim, errors: dict[bytes, BaseException], name: bytes) -> str:
    more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
    of = f" of {len(claim.ids)}" if len(claim.ids) > 1 else ""
    return f"id {shown(name)!r}{more}{of}: {_message(errors[name])}"


def _message(error: BaseException) -> str:
    """``ValueError: its text``, cut, and always encodable."""
    return _cut(described(error))


def _cut(words: str) -> str:
    return words[:_MESSAGE_MOST].encode("utf-8", "replace").decode()


def _readable(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return raw.decode("utf-8", "replace")


# --- what the records of tracked payloads keep of the end of their run ------------------------------------------------

_LEFT = "retry"  # the other payloads of an id whose lowest one went to the morgue: they failed too, and go on


def record_endings(ended: Sequence[tuple[Unit, Verdict]], endings: Mapping[Unit, str]) -> list[Verdict]:
    """The verdicts as ``ordered_settle_tracked.lua`` takes them. ``endings``: how each claim ended as a whole."""
    known: dict[tuple[Unit, str, int, str], str] = {}
    found = []
    for unit, verdict in ended:
        if unit.claim.endings is None and endings[unit] == "done":
            found.append(Verdict._make((verdict.token, verdict.id, "done", 0.0, 0, _finished(unit))))
            continue
        word, error = _ending(unit, verdict, endings[unit])
        key = (unit, word, id(error), verdict.error)  # most ids of a claim end alike
        facts = known.get(key)
        if facts is None:
            facts = known[key] = _facts(unit, word, error, verdict)
        found.append(verdict._replace(error=facts))
    return found


def _ending(unit: Unit, verdict: Verdict, ending: str) -> tuple[str, BaseException | None]:
    """How one id ended, in the words of ``work.outcome``, and of which error."""
    judged = unit.claim.endings
    if judged is None:
        return ("retry" if verdict.verdict == "retry" else ending), None
    word, error = judged[verdict.id]
    if verdict.verdict == "release":
        word = "interrupted"  # it was running: a claim that did not run is not judged
    return word, error


def _facts(unit: Unit, word: str, error: BaseException | None, verdict: Verdict) -> str:
    parts = [verdict.error]
    for status, ending in [(STATUS[word], word), ("enqueued", _LEFT)][: 2 if verdict.verdict == "to_morgue" else 1]:
        reason = _cut(words_of(error) or type(error).__name__) if error is not None else verdict.error
        count = unit.claim.retry_count
        facts = facts_of(
            unit, Outcome(ending, reason=reason, error=error), {"retry_count": count} if count >= 0 else {}
        )
        parts += [status, text({"ending": ending, **facts.detail}), str(facts.attempt)]
    return msgspec.json.encode(parts).decode()


def _finished(unit: Unit) -> str:
    """The facts of a run that went well, as nearly all do: a tenth of the time."""
    times = ""
    if unit.elapsed is not None:
        times = f',"started":{time.time() - unit.elapsed:.6f},"elapsed":{unit.elapsed:.6f}'
    return f'+{max(unit.claim.retry_count, -1) + 2} {{"ending":"done"{times}}}'
