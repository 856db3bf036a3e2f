"""How each id of a claim ends: the arithmetic of Lowkiq's retries (its page, section 1.6)."""

from __future__ import annotations

import random
from typing import Any

import msgspec

from henchman.client.ordered_options import OrderedOptions
from henchman.errors import Discard, Failure, JobCancelled, JobInterrupted, JobShutdown, Kill, Snooze
from henchman.kernel.middleware import takes
from henchman.kernel.text import described
from henchman.ordered.claim import Claim, shown
from henchman.store.ordered import ClaimedId, Verdict
from henchman.work.outcome import Outcome
from henchman.work.source import Teller

__all__ = ["Bench", "retry_delay"]

_MESSAGE_MOST = 10_000
#: from bad to good: the outcome of a claim is that of its worst id
_WORST = ("dead", "retry", "snoozed", "released", "cancelled", "failed", "discarded", "done")
_SETTLED = {Failure: "failed", Discard: "discarded", JobCancelled: "cancelled"}


def retry_delay(count: int) -> float:
    """Seconds until the next try after failure number ``count + 1``: ``count**4 + 15 + rand(30) * (count + 1)``."""
    return count**4 + 15 + random.randrange(30) * (count + 1)  # noqa: S311 - spreads load, hides nothing


class Bench:
    """Judges the claims of one definition."""

    def __init__(self, options: OrderedOptions) -> None:
        self._options = options

    def judge(self, claim: Claim, job: dict[str, Any], errors: dict[bytes, BaseException], teller: Teller) -> Outcome:
        """Write the verdicts into ``claim``, tell handlers and people; what became of the claim as a whole."""
        self._report(job, errors, teller)
        ended = [self._of_id(claim.token, one, errors.get(one.id), teller) for one in claim.ids]
        claim.verdicts = [verdict for verdict, _ in ended]
        claim.endings = {verdict.id: (word, errors.get(verdict.id)) for verdict, word in ended}
        buried = [one for one, (verdict, _) in zip(claim.ids, ended, strict=True) if verdict.verdict == "bury"]
        if buried:
            self._exhausted(buried, job, errors, teller)
        ending = min((word for _, word in ended), key=_WORST.index)
        first = next(iter(errors.values()), None)
        delays = [verdict.delay for verdict in claim.verdicts if verdict.delay]
        reason = self._reason(claim, errors) if errors else ""
        return Outcome(ending, delay=min(delays, default=0.0), reason=reason, error=first)

    def _of_id(self, token: int, one: ClaimedId, error: BaseException | None, teller: Teller) -> tuple[Verdict, str]:
        """The verdict on one id, and the word for it that an outcome has."""
        if error is None:
            return Verdict(token, one.id, "done"), "done"
        for kind, word in _SETTLED.items():
            if isinstance(error, kind):
                return Verdict(token, one.id, "done"), word
        if isinstance(error, Snooze):
            return Verdict(token, one.id, "snooze", error.delay), "snoozed"
        if isinstance(error, (JobShutdown, JobInterrupted)):
            return Verdict(token, one.id, "release"), "released"
        count, text = one.retry_count + 1, _told(error)
        if isinstance(error, Kill) or count >= self._options.max_retries:
            return Verdict(token, one.id, "bury", error=text), "dead"
        return Verdict(token, one.id, "retry", self._delay(count, error, teller), count, text), "retry"

    def _delay(self, count: int, error: BaseException, teller: Teller) -> float:
        asked: Any = self._options.retry_in
        if callable(asked):
            asked = teller.call(asked, *(count, error)[: takes(asked, 2)])
        if isinstance(asked, (int, float)) and not isinstance(asked, bool) and 0 <= asked < 1e10:
            return float(asked)
        return retry_delay(count)

    def _report(self, job: dict[str, Any], errors: dict[bytes, BaseException], teller: Teller) -> None:
        """Each exception once, however many ids it is the answer for."""
        quiet = (*_SETTLED, Snooze, JobShutdown, JobInterrupted)
        for error in {id(one): one for one in errors.values() if not isinstance(one, quiet)}.values():
            facts = {"context": "job raised", "job": job, "queue": job["queue"], "message": _told(error)}
            teller.report(error, facts)

    def _exhausted(
        self, buried: list[ClaimedId], job: dict[str, Any], errors: dict[bytes, BaseException], teller: Teller
    ) -> None:
        items = []
        for one in buried:
            score, raw = one.payloads[0]
            payload = _readable(raw)
            error = errors[one.id]
            items.append({"id": shown(one.id), "payloads": [[payload, score]], "error": _told(error)})
            teller.died({**job, "args": [{shown(one.id): [payload]}], "error_message": _told(error)}, error)
        if self._options.retries_exhausted is not None:
            teller.call(self._options.retries_exhausted, items)

    @staticmethod
    def _reason(claim: Claim, errors: dict[bytes, BaseException]) -> str:
        name, error = next(iter(errors.items()))
        more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
        of = f" of {len(claim.ids)}" if len(claim.ids) > 1 else ""
        return f"id {shown(name)!r}{more}{of}: {_told(error)}"


def _told(error: BaseException) -> str:
    """``ValueError: what it says``, cut, and always encodable."""
    return described(error)[:_MESSAGE_MOST].encode("utf-8", "replace").decode()


def _readable(raw: bytes) -> Any:
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return raw.decode("utf-8", "replace")
