"""Pushes of jobs that have a key, are followed or wait for others: the server admits each, parks it, or says whose
duplicate it is.

A push whose answer was lost is sent again under the same number of its lane and gets the same answer, also when the job
has run meanwhile. It is never buffered: only the server knows who has a key.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from henchman.client.keyed import Keyed
from henchman.client.options import OUTSIDE, within
from henchman.client.prepared import Admission, PreparedPush, PushSequence, dated, record_of
from henchman.client.rows import Arguments, Pushed, Slice, tell_pushed
from henchman.client.runtime import Runtime
from henchman.errors import ArgumentError, DuplicateJob
from henchman.store import admission, batches
from henchman.store.call import Call, Procedure
from henchman.wire.payload import decode, new_jid, new_jids

__all__ = ["KEYED_SLICE", "Admitted", "KeyedJob", "KeyedPushes", "deferred", "read_answer"]

KEYED_SLICE: Final = 250  # jobs of one call: each takes the server some 10 µs
_QUIET: Final = 60.0  # seconds
_CREATED: Final = [["C"]]
_ENDED: Final = {"s": "finished", "f": "failed"}


class KeyedJob(NamedTuple):
    """A job on its way: ``key`` as text, ``mark`` of its arguments, ``needs`` as the server takes them."""

    jid: str
    payload: bytes
    key: str
    mark: str
    needs: bytes = b""


class Admitted(NamedTuple):
    """What became of one push. ``jid``: of the job that is there now; of a duplicate the first one's. ``differs``: that
    one has other arguments. ``ended``: how it ended, "" when it has not as far as its key tells. ``key``: of the push.
    """

    jid: str
    queue: str
    admission: Admission = "created"
    differs: bool = False
    ended: str = ""
    key: str = ""


def keyed_jobs(
    plan: PreparedPush,
    keyed: Keyed,
    arguments: Sequence[Arguments],
    times: tuple[bytes, bytes | None],
    *,
    strict: bool,
) -> tuple[list[KeyedJob], ArgumentError | None]:
    """A job for each of ``arguments``, up to one whose key is missing: then also the error that says so, which
    ``strict`` raises."""
    made: list[KeyedJob] = []
    for (args, kwargs), jid in zip(arguments, new_jids(len(arguments)), strict=True):
        try:
            made.append(keyed_job(plan, keyed, args, kwargs, jid.decode(), times))
        except ArgumentError as error:
            if strict:
                raise
            error.pushed = len(made)
            return made, error
    return made, None


def keyed_job(
    plan: PreparedPush, keyed: Keyed, args: bytes, kwargs: bytes | None, jid: str, times: tuple[bytes, bytes | None]
) -> KeyedJob:
    """The job ``jid``; ArgumentError when its arguments give no key."""
    key = keyed.key(jid, args, kwargs)
    payload = plan.template.render(args, kwargs, jid, *times, keyed.member(key, args, kwargs))
    return KeyedJob(jid, payload, key, keyed.mark(args, kwargs), keyed.missed(key))


def reached(jobs: Sequence[KeyedJob], by_queue: Mapping[str, Sequence[bytes]]) -> dict[str, list[KeyedJob]]:
    """The jobs by queue as the client middleware left them; ArgumentError when a link changed what a key hangs on."""
    known = {one.jid: one for one in jobs}
    found: dict[str, list[KeyedJob]] = {}
    for queue, payloads in by_queue.items():
        for payload in payloads:
            job = decode(payload)
            before = known.get(job["jid"])
            if before is None or _key_in(job) != _key_in(decode(before.payload)):
                raise ArgumentError(
                    f"a client middleware changed the jid, hm.key, hm.needs or hm.limits of job {job['jid']!r}: they "
                    "are computed before the middleware, and hold until the job has ended"
                )
            found.setdefault(queue, []).append(before._replace(payload=payload))
    return found


def _key_in(job: Mapping[str, Any]) -> Any:
    ours = job.get("hm")
    said = ours if isinstance(ours, dict) else {}
    return [said.get(name) for name in ("key", "debounce", "needs", "once_for", "conflict", "limits")]


def read_answer(words: Sequence[str], jid: str, queue: str, key: str = "") -> Admitted:
    """What the server's answer to the push of ``jid`` means; ``lib/admit.lua`` lists the answers."""
    match words:
        case ["C"]:  # nearly every push
            return Admitted(jid, queue, "created", False, "", key)
        case ["D", first, differs]:
            return Admitted(first, queue, "duplicate", differs == "1", "", key)
        case ["R", first, differs, letter]:
            return Admitted(first, queue, "duplicate", differs == "1", _ENDED.get(letter, ""), key)
        case ["P", first]:
            return Admitted(first, queue, "duplicate", key=key)
        case ["B", *_]:
            return Admitted(jid, queue, "blocked", key=key)
    return Admitted(jid, queue, "created", key=key)


class KeyedPushes:
    """The pushes of jobs with a key, of one client; what it has in common with other pushes comes from there."""

    def __init__(
        self,
        runtime: Runtime,
        sequence: PushSequence,
        now_for: Callable[[PreparedPush], float],
        time_of: Callable[[PreparedPush], tuple[bool, tuple[bytes, bytes | None]]],
        learn_time: Callable[[], Generator[Any, Any, None]],
        through_links: Callable[[PreparedPush, bool, list[bytes]], Generator[Any, Any, dict[str, list[bytes]]]],
        plain_call: Callable[[PreparedPush, bool, str, list[bytes]], Call[Any]],
        write_rows: Callable[
            [PreparedPush, bool, Mapping[str, list[bytes]], Mapping[str, bytes]], Generator[Any, Any, None]
        ],
    ) -> None:
        self._runtime = runtime
        self._sequence = sequence
        self._now_for = now_for
        self._time_of = time_of
        self._learn_time = learn_time
        self._through_links = through_links
        self._plain_call = plain_call
        self._write_rows = write_rows
        self._links = runtime.client_middleware
        self._told: dict[str, float] = {}  # by class: when a duplicate with other arguments was told of

    def direct(self, using: Any, plan: PreparedPush) -> PreparedPush | None:
        """``plan`` when one call is all: no batch, record, link, outbox or clock takes part."""
        if _keyed_of(plan).is_recorded or plan.timed or plan.outbox is not None or self._links.links:
            return None
        batch = using.push_as.batch
        return plan if batch is OUTSIDE or (batch is None and within.get() is None) else None

    def one(self, plan: PreparedPush, arguments: Arguments) -> tuple[Call[Any], Callable[[Any], Admitted]]:
        """The call that pushes one job, and how its answer is read. ArgumentError when there is no key."""
        keyed = _keyed_of(plan)
        scheduled, times = self._time_of(plan)
        job = keyed_job(plan, keyed, *arguments, new_jid(), times)
        lane = self._sequence.take()
        call = self._call(plan, keyed, scheduled, plan.queue, [job], lane)

        def read(answer: Any) -> Admitted:
            self._sequence.give(lane)
            if answer == _CREATED:  # nearly every push
                return Admitted(job.jid, plan.queue, "created", False, "", job.key)
            return self.judged(keyed, self._read(plan, plan.queue, [job], answer))[0]

        return self._runtime.client.confirmed(call, lambda: [job.jid]), read

    def send(self, plan: PreparedPush, arguments: Arguments) -> Procedure[Admitted | None]:
        """Push one job; None when a link stopped it."""
        keyed = _keyed_of(plan)
        admitted, problem = yield from self._send(plan, [arguments])
        if problem is not None:
            raise problem
        return self.judged(keyed, admitted)[0] if admitted else None

    def send_many(
        self, plan: PreparedPush, following: Callable[[], Generator[Any, Any, Slice | None]]
    ) -> Procedure[Pushed]:
        """Push a job for each row of the slices that ``following`` gives, 250 a call."""
        keyed, counts, count = _keyed_of(plan), Counter[str](), 0
        try:
            while arguments := (yield from following()):
                for first in range(0, len(arguments), KEYED_SLICE):
                    some = arguments[first : first + KEYED_SLICE]
                    admitted, problem = yield from self._send(plan, some)
                    counts.update(one.admission for one in admitted)
                    stopped = keyed.raises and admitted and admitted[-1].admission == "duplicate"
                    count += len(admitted) - 1 if stopped else len(some) if problem is None else problem.pushed or 0
                    self.judged(keyed, admitted)
                    if problem is not None:
                        raise ArgumentError(f"row {count}: {problem}") from problem
        except Exception as error:
            tell_pushed(error, count)
            raise
        created, duplicates = counts["created"] + counts["blocked"], counts["duplicate"]
        deferred, blocked = counts["deferred"], 0 if plan.parked else counts["blocked"]
        left_out = count - created - duplicates - deferred
        return Pushed(count, created, duplicates, left_out, deferred=deferred, blocked=blocked)

    def _send(self, plan: PreparedPush, arguments: Slice) -> Procedure[tuple[list[Admitted], ArgumentError | None]]:
        """Push jobs as far as they have a key; what became of those that no link stopped, up to the first duplicate of
        a job that raises; and why a key is missing."""
        if plan.timed:
            yield from self._learn_time()
        scheduled, by_queue, problem = yield from self.made(plan, arguments)
        return (yield from self.pushed(plan, scheduled, by_queue)), problem

    def made(
        self, plan: PreparedPush, arguments: Slice
    ) -> Procedure[tuple[bool, dict[str, list[KeyedJob]], ArgumentError | None]]:
        """Whether jobs of now go to the schedule; the jobs by queue, as far as they have a key and no link stops them;
        and why a key is missing."""
        plan = dated(plan, self._now_for(plan))
        scheduled, times = self._time_of(plan)
        jobs, problem = keyed_jobs(plan, _keyed_of(plan), arguments, times, strict=len(arguments) == 1)
        by_queue = {plan.queue: jobs} if jobs else {}
        if self._links.links and jobs:
            through = yield from self._through_links(plan, scheduled, [one.payload for one in jobs])
            by_queue = reached(jobs, through)
        return scheduled, by_queue, problem

    def pushed(
        self, plan: PreparedPush, scheduled: bool, by_queue: Mapping[str, Sequence[KeyedJob]]
    ) -> Procedure[list[Admitted]]:
        """Push jobs; what became of them, up to the first duplicate of a job that raises. Jobs of an outbox are written
        there, and meet their keys when they are pushed."""
        keyed, found = _keyed_of(plan), list[Admitted]()
        if plan.outbox is not None and not self._runtime.stand_ins:
            questions = {one.jid: keyed.question(one.key, one.mark) for jobs in by_queue.values() for one in jobs}
            payloads = {queue: [one.payload for one in jobs] for queue, jobs in by_queue.items()}
            yield from self._write_rows(plan, scheduled, payloads, questions)
            return [deferred(one, queue) for queue, jobs in by_queue.items() for one in jobs]
        for queue, some in by_queue.items():
            lane = self._sequence.take()
            call = self._call(plan, keyed, scheduled, queue, some, lane)
            answer = yield self._runtime.client.confirmed(call, partial(_jids, some))
            self._sequence.give(lane)
            found += (admitted := self._read(plan, queue, some, answer))
            if len(admitted) < len(some):
                break
        return found

    def _call(
        self,
        plan: PreparedPush,
        keyed: Keyed,
        scheduled: bool,
        queue: str,
        jobs: Sequence[KeyedJob],
        lane: tuple[str, int],
    ) -> Call[Any]:
        when, keys, group, sequence = plan.when(scheduled), self._runtime.keys, plan.group, self._sequence
        if not keyed.is_recorded and not keyed.is_asked:
            return self._plain_call(plan, scheduled, queue, [one.payload for one in jobs])
        if not keyed.is_recorded:
            rows = [admission.KeyedPush(one.jid, when, one.payload, one.mark, one.key, one.needs) for one in jobs]
            return admission.push(keys, queue, keyed.asked, rows, lane)
        tracked = [self._tracked(keyed, one, when) for one in jobs]
        push = batches.push_keyed if keyed.is_asked else batches.push
        if group is not None:
            return push(keys, group.id, queue, tracked, lane=lane, member=group.member)
        if sequence.keep is None:
            sequence.keep = self._runtime.config.history_kept()
        return push(keys, "", queue, tracked, lane=lane, keep=sequence.keep)

    def _tracked(self, keyed: Keyed, one: KeyedJob, when: str) -> batches.TrackedPush:
        detail = record_of(self._runtime.registry, one.payload)[1]
        return batches.TrackedPush(one.jid, when, one.payload, detail, keyed.question(one.key, one.mark))

    def _read(self, plan: PreparedPush, queue: str, jobs: Sequence[KeyedJob], answer: Any) -> list[Admitted]:
        """What became of ``jobs``, by the answer to their call; one without words was asked nothing."""
        if plan.outbox is not None:
            return [deferred(one, queue) for one in jobs]
        if not isinstance(answer, list) or (answer and not isinstance(answer[0], list)):
            answer = [["C"]] * len(jobs)
        found = [read_answer(words, one.jid, queue, one.key) for words, one in zip(answer, jobs, strict=False)]
        return [one._replace(admission="blocked") for one in found] if plan.parked else found

    def judged(self, keyed: Keyed, admitted: list[Admitted]) -> list[Admitted]:
        """``admitted``; DuplicateJob where the last is a duplicate that is an error. Once a minute and class one with
        other arguments is told of: most wrong keys are found by that line."""
        first = next((one.jid for one in admitted if one.differs), None)
        now = time.monotonic()
        if first is not None and now - self._told.get(keyed.name, -math.inf) >= _QUIET:
            self._told[keyed.name] = now
            self._runtime.notice(
                "a push of %s has the key of job %s and other arguments: it is a duplicate and does not run. Is that "
                "the right key?",
                keyed.name,
                first,
            )
        if keyed.raises and admitted and admitted[-1].admission == "duplicate":
            one = admitted[-1]
            raise DuplicateJob(keyed.name, one.jid, status=one.ended, differs=one.differs)
        return admitted


def deferred(one: KeyedJob, queue: str) -> Admitted:
    """A job that meets its key, and what it waits for, after the commit of a transaction."""
    return Admitted(one.jid, queue, "deferred", key=one.key)


def _keyed_of(plan: PreparedPush) -> Keyed:
    assert plan.keyed is not None  # noqa: S101 - who calls has looked
    return plan.keyed


def _jids(jobs: Sequence[KeyedJob]) -> list[str]:
    return [one.jid for one in jobs]
