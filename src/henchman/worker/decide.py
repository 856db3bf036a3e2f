"""What becomes of jobs that wait for others when these do not succeed: their own policies, carried out by the stager.

The server writes down that a job is dead, or over without success, for whom the end of something is to be decided
(``hm:decide``); who waits then is asked for what it says, page by page. An entry is struck when its page is done, and
each job leaves its wait in one script with the effects of its end: a process that dies in between loses nothing, and
its successor does nothing twice.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError, PayloadError
from henchman.store import needs
from henchman.store.jobs import Due
from henchman.store.limits import limit_line
from henchman.store.needs import Blocked, ParkEnd
from henchman.wire import payload
from henchman.wire.deadlines import deadline_of, has_begun, is_over
from henchman.work.effects import EndingFacts, batch_of, encoded, of_payload, overdue_dead, overdue_facts
from henchman.work.limits import limits_of, max_wait
from henchman.work.locks import ONCE_FOR, said_needs

__all__ = ["Decisions"]

PAGE: Final = 100  # jobs of one call
RELEASED: Final = 500
_FAILED: Final = "DependencyFailed"
LIMITED: Final = "LimitReached"
_POLICIES: Final = ("wait", "run", "fail", "cancel")


class _Decision(NamedTuple):
    """A line of ``hm:decide``. ``how``: dead, over, cancel; ``jid``: of one job alone, "" for all who wait for ``name``
    in ``scope``, behind the place ``cursor`` and up to the place ``last``: who came later waits for the next job."""

    raw: bytes
    how: str
    jid: str
    cursor: int
    scope: str
    name: str
    last: int

    @classmethod
    def read(cls, raw: bytes) -> _Decision | None:
        """None for what is no entry of ours."""
        parts = raw.decode("utf-8", "surrogateescape").split("\n", 4)
        if len(parts) != 5 or not parts[2].isdigit():
            return None
        how, jid, cursor, scope, name = parts
        how, _, last = how.partition(" ")
        return cls(raw, how, jid, int(cursor), scope, name, int(last) if last.isdigit() else sys.maxsize)

    def behind(self, cursor: int) -> bytes:
        """The entry of what is left when the page before ``cursor`` is done."""
        text = f"{self.how} {self.last}\n{self.jid}\n{cursor}\n{self.scope}\n{self.name}"
        return text.encode("utf-8", "surrogateescape")


class Decisions:
    """Carries out what the stager's look found to decide."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._refused: list[str] = []  # jids of this look that the server did not let go

    def carry_out(self, seen: Due) -> bool:
        """Decide; whether there may be more to do at once. What the server refuses is tried again later."""
        was_refused = False
        for raw in seen.decisions:
            entry = _Decision.read(raw)
            self._refused = []
            left = [] if entry is None else self._left(entry, seen.now)
            if entry is not None:
                left += [entry._replace(jid=jid).behind(0) for jid in self._refused]
                was_refused = was_refused or bool(self._refused)
            self._ask(needs.decided(self._runtime.keys, raw, left))
        if seen.release:
            *_, refused = self._ask(needs.release_page(self._runtime.keys, seen.release, RELEASED))
            if refused:
                self._say(seen.release, refused)
            was_refused = was_refused or bool(refused)
        ended = self._overdue(seen)
        return bool(seen.decisions or seen.release or ended) and not was_refused

    def waits(self, jids: Sequence[bytes], *, limited: bool) -> dict[bytes, float]:
        """Of those of these jobs that are parked: the seconds that each wants to wait at most (``limited``), or after
        which it is due, where that is no moment that somebody named."""
        known: dict[bytes, float] = {}
        for one in self._found([_text(jid) for jid in jids]):
            wait = _at_most(one) if limited else payload.delay_of(one.payload)
            if wait is not None:
                known[one.jid.encode("utf-8", "surrogateescape")] = wait
        return known

    def _overdue(self, seen: Due) -> int:
        """End the wait of those who have waited as long as they wanted to; of how many."""
        jids = [_text(one) for one in seen.overdue]
        found = self._found(jids)
        self._clear(gone := set(jids) - {one.jid for one in found})
        over = {one.jid for one in found if is_over(_read(one), seen.now)}
        ended_for_good = self._end([one for one in found if one.jid in over], "deadline", seen.now)
        found = [one for one in found if one.jid not in over]
        met = self._met(found)
        ended = ended_for_good + self._end([one for one in found if one.jid in met], "met", seen.now)
        ended += self._end([one for one in found if one.jid not in met], "time", seen.now)
        return ended + len(gone)

    def _clear(self, jids: Iterable[str], lines: Sequence[str] = ()) -> None:
        """Take away what is left of the wait of jobs that are not parked: their rows were deleted by hand."""
        ends = [ParkEnd(jid, "nowhere", "", b"", b"", lines=lines) for jid in jids]
        if ends:
            self._ask(needs.park_ends(self._runtime.keys, ends, dead_max=1, dead_timeout=1.0))

    def _ask(self, call: Any) -> Any:
        return self._runtime.connections.run(call)

    def _left(self, entry: _Decision, now: float) -> list[bytes]:
        """Decide about a page of those whom an entry concerns; the entry of the others, if there are any."""
        if entry.how == "cancel" and not entry.jid:
            cursor, page = self._ask(needs.blocked_page(self._runtime.keys, entry.cursor, PAGE))
            batch = entry.scope.removeprefix("batch:")
            self._end([one for one in page if batch_of(_read(one)) == batch], "cancel", now)
            return [entry.behind(cursor)] if cursor else []
        need = None if entry.how == "cancel" else (entry.scope, entry.name)
        how = entry.how if need is None else self._how(entry)
        if not how:
            return []
        if entry.jid:
            self._end(self._found([entry.jid]), how, now, need)
            return []
        waiting = self._ask(needs.waiting_on(self._runtime.keys, entry.scope, entry.name, entry.cursor, PAGE))
        concerned = [one for one in waiting if one.token <= entry.last]
        self._end([one.job for one in concerned if one.job is not None], how, now, need)
        self._clear([one.jid for one in concerned if one.job is None], [needs.line(entry.scope, entry.name)])
        return [entry.behind(waiting[-1].token)] if concerned == waiting != [] else []

    def _how(self, entry: _Decision) -> str:
        """What has become of a need by now: a dead job may live again or be gone, and a new one may have the key ("":
        that one is waited for); who comes after an earlier success does not wait, nor do these: "met". Of a step that
        lives nothing is written."""
        [state] = self._ask(needs.need_states(self._runtime.keys, [(entry.scope, entry.name, self._memory(entry))]))
        if not state.letter and entry.scope.startswith("batch:"):
            return ""
        return {"l": "", "s": "met", "d": "dead"}.get(state.letter, "over")

    def _memory(self, entry: _Decision) -> int:
        """For how many seconds the end of this need is remembered: who waits for it says so."""
        if entry.jid:
            jobs = self._found([entry.jid])
        else:
            page = self._ask(needs.waiting_on(self._runtime.keys, entry.scope, entry.name, 0, 1))
            jobs = [one.job for one in page if one.job is not None]
        known = [one.once_for for job in jobs for one in said_needs(_read(job)) if one[:2] == (entry.scope, entry.name)]
        return next((one for one in known if one > 0), ONCE_FOR)

    def _met(self, jobs: Sequence[Blocked]) -> set[str]:
        """The jids of those who wait for nothing that has not succeeded: they were about to be let go."""
        asked = [(one.jid, need) for one in jobs for need in _missing_with_memory(one, _read(one))]
        met = {jid for jid, _ in asked}
        for start in range(0, len(asked), RELEASED):
            some = asked[start : start + RELEASED]
            states = self._ask(needs.need_states(self._runtime.keys, [need for _, need in some]))
            met -= {jid for (jid, _), state in zip(some, states, strict=True) if state.letter != "s"}
        return met

    def _found(self, jids: Sequence[str]) -> list[Blocked]:
        found: list[Blocked] = []
        while jids:
            answered = self._ask(needs.blocked(self._runtime.keys, jids))
            found += [one for one in answered if one is not None]
            jids = jids[max(len(answered), 1) :]
        return found

    def _end(self, jobs: Iterable[Blocked], how: str, now: float, need: tuple[str, str] | None = None) -> int:
        """Carry out what each of these jobs says of ``how`` its ``need``, or else its whole wait, has ended; how many
        do not wait any more."""
        ends = [end for one in jobs for end in self._planned(one, how, now, need)]
        if not ends:
            return 0
        config = self._runtime.config
        call = needs.park_ends(self._runtime.keys, ends, dead_max=config.dead_max, dead_timeout=config.dead_timeout)
        statuses = self._ask(call)
        for one, status in zip(ends, statuses, strict=True):
            if isinstance(status, bytes):
                self._refused.append(one.jid)
                self._say(one.old_row, status.decode("utf-8", "replace"))
        return sum(status == 1 for status in statuses)

    def _say(self, row: bytes, reason: str) -> None:
        self._runtime.events.emit("refused", unit=row, ending="decided", reason=reason)

    def _planned(self, one: Blocked, how: str, now: float, need: tuple[str, str] | None) -> list[ParkEnd]:
        """What becomes of a job: one end, or none when it waits for something else. One that cannot be read, or be
        stored as it is to go on, goes to the dead: it must not hold up the others."""
        try:
            return list(self._chosen(one, payload.decode(one.payload), how, now, need))
        except (PayloadError, ArgumentError) as error:
            dead = payload.invalid(one.payload, str(error), one.queue or "default", now)
            effects = of_payload(self._runtime.keys, one.payload, "invalid")
            return [ParkEnd(one.jid, "dead", "", one.row, dead, effects, _lines(one, _read(one)))]

    def _chosen(
        self, one: Blocked, job: dict[str, Any], how: str, now: float, need: tuple[str, str] | None
    ) -> Iterator[ParkEnd]:
        """The same, as the job says."""
        if how == "cancel":
            yield self._over(one, job, "cancelled", EndingFacts(), now)
            return
        if how == "deadline":
            facts = overdue_facts(job, "for others")
            yield self._over(one, job, "dead" if has_begun(job) else "expired", facts, now)
            return
        if one.reason.startswith("limit "):
            if how == "time":
                yield self._over(one, job, "dead", _waited(job), now)
            return
        missing = _missing(one, job)
        if need is not None and need not in missing:
            return
        wanted = [need] if need is not None else missing
        if how == "met" and need is None:
            yield ParkEnd(one.jid, "queue", "", one.row, one.payload, lines=_lines(one, job))
        elif how == "met":
            yield ParkEnd(one.jid, "met", needs.line(*wanted[0]), one.row, one.payload, lines=[needs.line(*wanted[0])])
        else:
            yield from self._by_policy(one, job, how, now, wanted)

    def _by_policy(
        self, one: Blocked, job: dict[str, Any], how: str, now: float, wanted: Sequence[tuple[str, str]]
    ) -> Iterator[ParkEnd]:
        labels = _labels(job, wanted)
        policy = _policy(job, how, wanted)
        if policy == "wait":
            reason = f"needs {how} {now:.0f} {labels[0]}"
            if how != "time" and one.reason.split(" ", 2)[:2] != ["needs", how]:
                yield ParkEnd(one.jid, "stays", "", one.row, one.with_reason(reason))
            elif how == "time":
                yield self._goes_on(one, job, how, wanted, labels)
        elif policy == "run":
            yield self._goes_on(one, job, how, wanted, labels)
        else:
            ending = "dead" if policy == "fail" else "cancelled"
            others = [need for need in _missing(one, job) if need not in wanted]
            informed = _informed(_informed(job, labels, how), _labels(job, others), "released")
            yield self._over(one, informed, ending, _facts(how, labels), now)

    def _goes_on(
        self, one: Blocked, job: dict[str, Any], how: str, wanted: Sequence[tuple[str, str]], labels: Sequence[str]
    ) -> ParkEnd:
        """These needs count as met, which the payload tells."""
        new = payload.encode(_informed(job, labels, how))
        if how == "time":
            return ParkEnd(one.jid, "queue", "", one.row, new, lines=_lines(one, job))
        line = needs.line(*wanted[0])
        return ParkEnd(one.jid, "met", line, one.row, new, lines=[line])

    def _over(self, one: Blocked, job: dict[str, Any], ending: str, facts: EndingFacts, now: float) -> ParkEnd:
        """The job ends without having run."""
        effects, lines = encoded(self._runtime.keys, job, ending, facts), _lines(one, job)
        if ending in ("cancelled", "expired"):
            return ParkEnd(one.jid, "nowhere", "", one.row, one.payload, effects, lines)
        stamp = self._runtime.stamp(now)
        told = {"queue": one.queue, "failed_at": msgspec.json.decode(stamp), **_error_of(facts)}
        dead = job | told | {"retry_count": job.get("retry_count", 0)}
        if facts.detail.get("cause") == "deadline":
            dead = overdue_dead(job, one.queue, stamp, facts)
        stored = payload.encode(dead)
        return ParkEnd(one.jid, "dead", batch_of(job), one.row, stored, effects, lines)


def _text(jid: bytes) -> str:
    return jid.decode("utf-8", "surrogateescape")


def _wait_at_most(job: dict[str, Any]) -> float | None:
    """None too of a job with a deadline, which is a moment and stays."""
    ours = job.get("hm")
    if deadline_of(job) is not None:
        return None
    return payload.seconds(ours.get("wait_at_most")) if isinstance(ours, dict) else None


def _at_most(one: Blocked) -> float | None:
    job = _read(one)
    return max_wait(job) or None if one.reason.startswith("limit ") else _wait_at_most(job)


def _read(one: Blocked) -> dict[str, Any]:
    try:
        return payload.decode(one.payload)
    except PayloadError:
        return {}


def _informed(job: dict[str, Any], labels: Sequence[str], how: str) -> dict[str, Any]:
    """The job, which knows how what it waited for has ended."""
    hm = job.get("hm")
    ours = hm if isinstance(hm, dict) else {}
    met = ours.get("met")
    told = dict.fromkeys(labels, how)
    return job | {"hm": ours | {"met": met | told if isinstance(met, dict) else told}}


def _facts(how: str, labels: Sequence[str]) -> EndingFacts:
    """Why a job ends that waited."""
    words = {"dead": f"{labels[0]} is dead", "over": f"{labels[0]} is over without success"}
    message = f"it waited for {', '.join(labels[:10])}: " + words.get(how, "its time is over")
    return EndingFacts(detail={"error_class": _FAILED, "message": message, "reason": message})


def _waited(job: dict[str, Any]) -> EndingFacts:
    """Why a job ends that waited for a place of its limits."""
    names = ", ".join(dict.fromkeys(one.name for one in limits_of(job)))
    message = f"it waited for its limits ({names}) for max_wait, {max_wait(job):g} s, and was not started"
    return EndingFacts(detail={"cause": "limit", "error_class": LIMITED, "message": message, "reason": message})


def _error_of(facts: EndingFacts) -> dict[str, Any]:
    cause = {"error_cause": facts.detail["cause"]} if "cause" in facts.detail else {}
    return {"error_class": facts.detail["error_class"], "error_message": facts.detail["message"], **cause}


def _missing(one: Blocked, job: dict[str, Any]) -> list[tuple[str, str]]:
    """What a job still waits for; of one that has a single need the server keeps no list."""
    if not one.reason.startswith("needs"):
        return []
    return one.missing or [(need[0], need[1]) for need in said_needs(job)[:1]]


def _missing_with_memory(one: Blocked, job: dict[str, Any]) -> list[tuple[str, str, int]]:
    """The same, and for how many seconds the end of each is remembered."""
    known = {(need[0], need[1]): need[2] for need in said_needs(job)}
    return [(*need, known.get(need) or ONCE_FOR) for need in _missing(one, job)]


def _labels(job: dict[str, Any], wanted: Sequence[tuple[str, str]]) -> list[str]:
    known = {(one[0], one[1]): str(one[3]) for one in said_needs(job)}
    return [known.get(one, one[1]) for one in wanted] or ["nothing"]


def _policy(job: dict[str, Any], how: str, wanted: Sequence[tuple[str, str]]) -> str:
    """What the job says; unsaid it waits, but for a step of a workflow that is over."""
    ours = job.get("hm")
    said = ours if isinstance(ours, dict) else {}
    step = any(scope.startswith("batch:") for scope, _ in wanted)
    given, given_dead = (said[name] if said.get(name) in _POLICIES else "" for name in ("on_failed", "on_dead"))
    failed = given or ("cancel" if step else "wait")
    dead = given_dead or given or "wait"
    if how == "time":
        return str(dead if failed == "wait" else failed)
    return str(dead if how == "dead" else failed)


def _lines(one: Blocked, job: dict[str, Any]) -> list[str]:
    """The lines in which a job may stand, beside those that the server keeps for it."""
    if one.reason.startswith("needs"):
        return [needs.line(need[0], need[1]) for need in said_needs(job)]
    if one.reason.startswith("limit "):
        return [limit_line(limit.name, limit.by) for limit in limits_of(job) if limit.kind == "c"]
    ours = job.get("hm")
    key = ours.get("key") if isinstance(ours, dict) else None
    if not isinstance(key, list) or len(key) != 3:
        return []
    return [f"{'r' if one.reason == 'running' else 'u'}{key[0]}\n{key[1]}"]
