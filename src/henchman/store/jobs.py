"""The moves of a job as calls: push, fetch, settle, give back, stage, charge, cancel.

Bytes only; nothing here does I/O. What each script guarantees stands in the header of its file in ``lua/``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

from henchman.errors import ArgumentError, LeaseLost, PayloadError
from henchman.store.call import Arg, Call, command, commands, load, script
from henchman.store.keys import Keys

_FETCH = load("fetch")
_SETTLE = load("settle")
_SETTLE_OLDEST = load("settle_oldest")
_GIVE_BACK = load("give_back")
_DUE = load("due")
_MOVE = load("move")
_REBASE = load("rebase")
_REBASE_PAGE = load("rebase_page")
_SCHEDULE = load("schedule")
_DELIVER = load("deliver")
_CHARGE = load("charge")
_END_LOST = load("end_lost")
_CANCEL = load("cancel")
_UNCANCEL = load("uncancel")
_ITERATE = load("iterate")
_CHECKPOINT = load("checkpoint")
_ENDING, _EFFECTS = itemgetter(2), itemgetter(5)  # of a Settlement
SETTLED_TOGETHER = 100  # units with effects in a call of the script
_MARK_MS = 24 * 3600 * 1000
_PAGE = 2000  # marks that one look into the list of cancellations reads
_DEATH_LIFE = 72 * 3600  # seconds for which a death counts, as Sidekiq Pro's poison pills
_STATE_LIFE = 30 * 86400  # seconds after the last save
_LOST_LIFE = 30 * 86400  # seconds after the last loss

CALLED_OFF = -1  # a status: the cancellation that it was to end by stands no more; it is in flight as before
MOST_BYTES = 4 << 20  # of payloads in one call, as in ``lua/lib/bytes.lua``
KEEP_CANCELS = 30 * 86400  # seconds: a job that waits longer than this can be cancelled again
LATE = -1  # what ``save_state`` answers when the job is another process's by now, or over
HELD = b"HELD "  # how the status of a move begins that would bring a job back whose key another has; then its jid
EARLIER = 2  # a status: settled by an earlier sending of the same call, whose answer nobody read


def push(keys: Keys, queue: str, payload: bytes) -> Call[Any]:
    """Put one payload at the left end of its queue; the queue's name is made known in the same write."""
    return commands(("SADD", keys.queues, queue), ("LPUSH", keys.queue_prefix + queue, payload), again=False)


def push_many(keys: Keys, queue: str, payloads: Sequence[bytes]) -> Call[Any]:
    """Put payloads into a queue; the first of the sequence runs first."""
    return commands(("SADD", keys.queues, queue), ("LPUSH", keys.queue_prefix + queue, *payloads), again=False)


def schedule(keys: Keys, entries: Iterable[tuple[float | None, float, bytes]]) -> Call[Any]:
    """Put (at, delay, payload) into the schedule: due at the Unix time ``at``, or ``delay`` from the server's now."""
    args: list[Arg] = []
    for at, delay, payload in entries:
        args += ("" if at is None else repr(float(at)), repr(float(delay)), payload)
    return script(_SCHEDULE, [keys.schedule], args, again=False)


class Delivery(NamedTuple):
    """One push that a client had to keep. ``queue`` None is the schedule, with ``at`` or ``delay`` as above."""

    queue: str | None
    at: float | None
    delay: float
    payload: bytes


def deliver(keys: Keys, mark: str, entries: Sequence[Delivery], *, mark_ms: int = _MARK_MS) -> Call[list[int | bytes]]:
    """Push ``entries`` in order, once for each ``mark``, which is remembered for so long: it may be sent again.

    One status an entry: 1 pushed, bytes the server's refusal; an empty list when it had been executed before.
    """
    args: list[Arg] = [mark_ms]
    for queue, at, delay, payload in entries:
        args += (queue or "", "" if at is None else repr(float(at)), repr(float(delay)), payload)
    return script(_DELIVER, [keys.queues, keys.delivered(mark)], args, list, again=True)


def note_lost(keys: Keys, count: int, latest: str) -> Call[Any]:
    """Count jobs that were lost after a commit, for ``doctor``; ``latest`` tells of the last of them in words."""
    key = keys.submissions_lost
    return commands(
        ("HINCRBY", key, "count", count), ("HSET", key, "latest", latest), ("EXPIRE", key, _LOST_LIFE), again=False
    )


class Fetched(NamedTuple):
    """What a fetch brought: payloads by queue, and the number of cancellations the server had seen by then."""

    cancels: int
    payloads: list[list[bytes]]


class LeaseLapsed(LeaseLost):
    """The lease ran out but nobody has buried the identity yet: renew, then go on."""


def leased(reply: Any) -> Any:
    """What a script answered that asks for the lease of its process; LeaseLost, LeaseLapsed when that is not there."""
    if reply == b"LOST":
        raise LeaseLost("this process was declared dead by another one")
    if reply == b"LAPSED":
        raise LeaseLapsed("the lease of this process ran out")
    return reply


def _fetched(reply: Any) -> Fetched:
    return Fetched(leased(reply)[0], reply[1:])


def fetch(
    keys: Keys, identity: str, queues: Sequence[tuple[str, str, str, int]], count: int, lease_ms: int
) -> Call[Fetched]:
    """Move up to ``count`` payloads from ``queues`` into flight.

    ``queues`` are (name, key, in-flight list, extra) in the order to look at: the one that fills the count may give
    ``extra`` more. No more than 4 MB come at once, or one payload.
    Raises LeaseLost or LeaseLapsed.
    """
    names = [keys.leases + identity, keys.tombs_of + identity, keys.paused, keys.cancels]
    args: list[Arg] = [lease_ms, count]
    for name, key, in_flight, extra in queues:
        names += (key, in_flight)
        args += (name, extra)
    return script(_FETCH, names, args, _fetched, again=False)


class Settlement(NamedTuple):
    """One unit to end: where it lies, what becomes of it. ``stored`` is what the retry or dead set gets.

    In place of the delay stands the batch of a unit that is ``kept`` with it. One that is ``cancelled`` because the
    list of cancellations said so has ``?`` and its jid in place of ``stored``, and its batch in place of the delay.
    """

    pair: int
    payload: bytes
    ending: str
    stored: bytes = b""
    delay: float | str = 0.0
    effects: bytes = b""


def _statuses(reply: Any) -> list[int | bytes]:
    if reply == b"LOST":
        raise LeaseLost("this process was declared dead by another one")
    return list(reply)


def _statuses_again(reply: Any) -> list[int | bytes]:
    """Of a settling that was sent before: it is executed whole, so either it was (nothing is left to settle now) or
    it was not."""
    statuses = _statuses(reply)
    return statuses if 1 in statuses else [EARLIER if one == 0 else one for one in statuses]


def _chunks(units: Sequence[Settlement]) -> list[Sequence[Settlement]]:
    """Where the units go to several calls of the script: effects take so long that others wait for the server."""
    if len(units) <= SETTLED_TOGETHER or not any(map(_EFFECTS, units)):
        return [units]
    return [units[first : first + SETTLED_TOGETHER] for first in range(0, len(units), SETTLED_TOGETHER)]


def _of_chunks(read: Callable[[Any], list[int | bytes]], sizes: Sequence[int]) -> Callable[[Any], list[int | bytes]]:
    """Each chunk is executed whole or not at all. One that came after the identity was buried found nothing."""

    def read_all(replies: list[Any]) -> list[int | bytes]:
        if all(reply == b"LOST" for reply in replies):
            return read(replies[0])
        pairs = zip(replies, sizes, strict=True)
        return list(chain.from_iterable([0] * size if reply == b"LOST" else read(reply) for reply, size in pairs))

    return read_all


def _in_one_write(calls: Sequence[Call[list[int | bytes]]], sizes: Sequence[int]) -> Call[list[int | bytes]]:
    """Several calls of one script as one call; the answer is theirs, one after another."""
    first, parts = calls[0], [call.parts[0] for call in calls]
    read, read_again = _of_chunks(first.decode, sizes), _of_chunks(first.decode_again, sizes)
    return Call(first.name, parts, read, again=first.again, script=first.script, decode_again=read_again)


def settle(
    keys: Keys,
    identity: str,
    pairs: Sequence[tuple[str, str]],
    units: Sequence[Settlement],
    *,
    lease_ms: int,
    day: str,
    dead_max: int,
    dead_timeout: float,
) -> Call[list[int | bytes]]:
    """End units. ``pairs`` are (in-flight list, queue key); a unit names its pair by index from 1.

    One status a unit: 1 settled, 0 it was not ours any more, ``EARLIER``, ``CALLED_OFF``, bytes the server's refusal.
    Raises LeaseLost. Many units with effects are several calls of the script, sent in one write.
    Never sent again when it gives something back: the same bytes may have been fetched anew by then, and be running.
    """
    names = [keys.queues, keys.leases + identity, keys.tombs_of + identity, *chain.from_iterable(pairs)]
    again, chunks = "released" not in map(_ENDING, units), _chunks(units)
    calls = []
    for chunk in chunks:
        args: list[Arg] = [lease_ms, day, dead_max, dead_timeout, *chain.from_iterable(chunk)]
        calls.append(script(_SETTLE, names, args, _statuses, again=again, decode_again=_statuses_again))
    return calls[0] if len(calls) == 1 else _in_one_write(calls, [len(chunk) for chunk in chunks])


def settle_oldest(
    keys: Keys, identity: str, flight: str, ends: Sequence[bytes], count: int, lease_ms: int, day: str
) -> Call[list[int | bytes]]:
    """End the ``count`` oldest units of an in-flight list together, done and without effects; ``ends`` are the payloads
    of the oldest and of the newest of them. One status for all, as of ``settle``. Raises LeaseLost."""
    names = [keys.queues, keys.leases + identity, keys.tombs_of + identity, flight]
    args: list[Arg] = [lease_ms, day, count, *ends]
    return script(_SETTLE_OLDEST, names, args, _statuses, again=True, decode_again=_statuses_again)


def give_back(keys: Keys, flight: str, queue: str, most: int) -> Call[int]:
    """Move up to ``most`` payloads, or 4 MB, of an in-flight list back to the right end of ``queue`` (its name)."""
    return script(_GIVE_BACK, [keys.queues, flight, keys.queue(queue)], [most, queue], int, again=True)


class Due(NamedTuple):
    """A look at the retry and schedule sets. ``mine`` is False when another process stages just now; ``now`` is the
    server's time in any case. ``more``: not all that is due had room. ``gap``: seconds by the server's clock since the
    last look of any process, negative when the clock went back, None at the first look. ``step``: seconds by which the
    clock was found to have stepped. ``left``: the steps with which times have yet to be moved along, for ``rebase``.
    ``trimmed``: payloads that the dead set had no room for, and that have yet to be ended. ``decisions``, ``release``,
    ``overdue``: what there is to do about parked jobs, see ``worker/decide.py``.
    """

    mine: bool
    now: float
    retries: Sequence[bytes] = ()
    scheduled: Sequence[bytes] = ()
    next_at: float | None = None
    more: bool = False
    gap: float | None = None
    step: float = 0.0
    left: bytes = b""
    trimmed: Sequence[bytes] = ()
    decisions: Sequence[bytes] = ()
    release: bytes = b""
    overdue: Sequence[bytes] = ()


def _due(reply: Any) -> Due:
    if reply[0] == 0:
        return Due(False, float(reply[1]))
    _, now, retries, scheduled, next_at, more, gap, step, *rest = reply
    due_next, since = float(next_at) if next_at else None, float(gap) if gap else None
    return Due(True, float(now), retries, scheduled, due_next, more == 1, since, float(step), *rest)


def due(
    keys: Keys, identity: str, staging_ms: int, most: int, doubtful: float | None = None, forward: float = 0.0
) -> Call[Due]:
    """What is due by the server's clock, at most ``most`` of each set, and about 4 MB; removes nothing.

    ``doubtful``: the clock has not stepped longer ago than these seconds, None: nobody knows. ``forward``: seconds by
    which it has stepped forward since this process looked last; that it went back, the server sees.
    """
    names = [keys.staging, keys.retry, keys.schedule, keys.clock, keys.paused, keys.trimmed]
    names += [keys.decide, keys.releases, keys.parked_until, keys.pauses]
    args: list[Arg] = [identity, staging_ms, most, "" if doubtful is None else doubtful, forward or 0, keys.control_all]
    return script(_DUE, names, args, _due, again=not forward)


class TimesPage(NamedTuple):
    """Members of a set of times, from a time on. ``seen``: how many members this page is, ``ties`` of which have the
    last one's time, ``last``; ``found``: those that were asked for."""

    now: float
    seen: int
    last: str
    ties: int
    found: list[tuple[bytes, float]]


def rebase_page(source: str, start: str, skip: int, most: int, *, down: bool, noted: str) -> Call[TimesPage]:
    """A page of the set ``source`` (a key), behind ``skip`` members of the score ``start``, upwards or ``down``; of at
    most ``most`` members, or 4 MB, those that hold the text ``noted``."""

    def read(reply: Any) -> TimesPage:
        now, seen, last, ties, *flat = reply
        return TimesPage(
            float(now), seen, last.decode(), ties, list(zip(flat[::2], map(float, flat[1::2]), strict=True))
        )

    return script(_REBASE_PAGE, [source], [start, skip, most, int(down), noted], read, again=True)


def rebase(
    keys: Keys, source: str, left: bytes, then: bytes, moves: Iterable[tuple[bytes, float, float]]
) -> Call[bool]:
    """Give members of the set ``source`` (a key) another time: (member, time now, new time). ``then`` takes the place
    of ``left``, the first line of what is left to do; False, with nothing moved, when that stands there no more."""
    args: list[Arg] = [left, then]
    for member, score, new in moves:
        args += (member, repr(score), f"{new:.6f}")
    return script(_REBASE, [keys.clock, source], args, bool, again=True)


class Move(NamedTuple):
    """One entry to take out of a sorted set. ``queue`` None means the dead set; ``delete`` means nowhere; with
    ``later`` it stays where it is, due as many seconds from the server's now; with ``at`` ``new`` takes its place, due
    at that Unix time.

    ``effects``: those of its job, when it ends here or is enqueued. ``batch``: with the dead of that batch, where there
    is one, in place of the dead set. ``waits``: before it goes into its queue it waits once more for what its last
    effect tells; then ``new`` does not tell when it enters that. ``next``: it is the next to run there.
    """

    old: bytes
    new: bytes = b""
    queue: str | None = None
    delete: bool = False
    effects: bytes = b""
    batch: str = ""
    later: float | None = None
    at: float | None = None
    waits: bool = False
    next: bool = False

    def target(self) -> tuple[str, str]:
        """Where it goes, as ``move.lua`` reads it: where, and name."""
        if self.later is not None:
            return "later", repr(self.later)
        if self.at is not None:
            return "at", repr(self.at)
        if self.delete:
            return "nowhere", ""
        if self.queue is None:
            return "dead", self.batch
        return ("waits" if self.waits else "next" if self.next else "queue"), self.queue


def move(
    keys: Keys, source: str, moves: Sequence[Move], *, dead_max: int, dead_timeout: float
) -> Call[list[int | bytes]]:
    """Take entries out of the set ``source`` (a key) and put each where it goes; one status an entry, as the script has
    it, or ``EARLIER``."""
    args: list[Arg] = [dead_max, dead_timeout]
    for one in moves:
        args += (*one.target(), one.old, one.new, one.effects)
    return script(_MOVE, [keys.queues, source], args, _statuses, again=True, decode_again=_statuses_again)


# Deaths charged to jobs (PROTOCOL, section 7).


def charge(
    keys: Keys,
    flight: str,
    jid: str,
    record: bytes,
    payload: bytes,
    stored: bytes,
    *,
    alone: bool,
    dead_max: int,
    dead_timeout: float,
    effects: bytes = b"",
    batch: str = "",
    notice: bytes = b"",
) -> Call[int]:
    """Charge job ``jid``, which lies as ``payload`` in the list ``flight``, with one death: ``record`` is one line,
    ``<time> <identity> <cause>``; a second one for the same identity is none.

    The deaths it has now, 0 when it does not lie there any more; -1 when it was the third, alone: it
    went to the dead set as ``stored``, its ``effects`` were carried out, and ``notice`` waits for a death handler.
    """
    args: list[Arg] = [jid, record, payload, stored, int(alone), dead_max, dead_timeout, _DEATH_LIFE]
    args += [effects, batch, notice]
    return script(_CHARGE, [keys.queues, flight], args, int, again=True)


def end_lost(
    keys: Keys,
    flight: str,
    payload: bytes,
    outcome: Any,
    batch: str,
    effects: bytes,
    *,
    day: str,
    dead_max: int,
    dead_timeout: float,
) -> Call[int | bytes]:
    """End ``payload``, which lies in the list ``flight`` of a process that is gone, as ``outcome`` (a
    ``work.outcome.Outcome``) says: 1, 0 it does not lie there any more, or what the server said that refused it."""
    args: list[Arg] = [payload, outcome.ending, outcome.stored, repr(float(outcome.delay)), batch, effects, day]
    return script(_END_LOST, [keys.queues, flight], [*args, dead_max, dead_timeout], _as_it_is, again=True)


def _as_it_is(reply: Any) -> int | bytes:
    answer: int | bytes = reply
    return answer


def deaths(keys: Keys, jid: str) -> Call[list[str]]:
    """The lines that were written down for ``jid`` so far, oldest first."""

    def read(reply: Any) -> list[str]:
        return reply.decode("utf-8", "replace").split("\n") if reply else []

    return command("HGET", keys.deaths, jid, decode=read)


def forget_deaths(keys: Keys, jid: str) -> Call[Any]:
    """The deaths of ``jid`` have had their consequence."""
    return commands(("HDEL", keys.deaths, jid), ("ZREM", keys.charged, jid), ("SREM", keys.suspects, jid))


# Cancelled jobs.


def cancel(keys: Keys, jid: str) -> Call[int]:
    """Write a jid down as cancelled and tell every process, iterable jobs in Ruby too; how many heard it."""
    if not isinstance(jid, str):
        raise ArgumentError(f"cancel({jid!r:.100}): give the id of a job, such as handle.jid")
    return _cancel(keys, jid, is_job=True)


def cancel_batch(keys: Keys, batch: str) -> Call[int]:
    """Tell every process that no job of the batch is to start, and that those that run are to hear it."""
    return _cancel(keys, f"batch:{batch}", is_job=False)


def _cancel(keys: Keys, mark: str, *, is_job: bool) -> Call[int]:
    args: list[Arg] = [mark, keys.control_all, f"cancel {mark}", KEEP_CANCELS, int(is_job)]
    return script(_CANCEL, [keys.queues], args, int, again=True)


def uncancel(keys: Keys, members: Sequence[str]) -> Call[frozenset[str]]:
    """Let jobs start that are put into their queues again, whatever was cancelled before; which of them had been.

    ``members``: jids, or ``batch:<id>``.
    """

    def read(reply: Any) -> frozenset[str]:
        return frozenset(one.decode() for one in reply)

    return script(_UNCANCEL, [keys.queues], [one for one in members if _is_text(one)], read, again=True)


def cancelled(keys: Keys, jids: Sequence[str]) -> Call[frozenset[str]]:
    """Which of these jobs are marked as cancelled."""
    plain = [one for one in jids if _is_text(one)]

    def read(scores: Any) -> frozenset[str]:
        return frozenset(jid for jid, score in zip(plain, scores, strict=False) if score is not None)

    return command("ZMSCORE", keys.cancelled, *plain or ("",), decode=read)


class CancelNews(NamedTuple):
    """Steps of the counter up to ``last``, oldest first: ``+`` and the member that was cancelled, ``-`` and one that is
    not any more. ``suspects``, what is ``paused``: all of them, if they changed."""

    last: int
    steps: list[tuple[str, str]]
    suspects: frozenset[str] | None
    paused: frozenset[str] | None


def cancel_head(keys: Keys) -> Call[CancelNews]:
    """Where the log of cancellations stands, and all that is read as a whole."""

    def read(replies: Any) -> CancelNews:
        return CancelNews(int(replies[0] or 0), [], _texts(replies[1]), _texts([*replies[2], *replies[3]]))

    return commands(("GET", keys.cancels), ("SMEMBERS", keys.suspects), *_paused(keys), decode=read)


def _paused(keys: Keys) -> tuple[tuple[Arg, ...], ...]:
    return ("SMEMBERS", keys.paused_batches), ("HKEYS", keys.paused_kinds)


def cancel_page(keys: Keys, cursor: int) -> Call[tuple[int, frozenset[str]]]:
    """Some of what is cancelled: the cursor of the next page, 0 after the last, and the members."""

    def read(reply: Any) -> tuple[int, frozenset[str]]:
        return int(reply[0]), _texts(reply[1][::2])

    return command("ZSCAN", keys.cancelled, cursor, "COUNT", _PAGE, decode=read)


def cancel_news(keys: Keys, seen: int, most: int) -> Call[CancelNews | None]:
    """What the counter has counted after ``seen``, from its log, of which ``most`` steps are read; None when a step is
    missing there."""

    def read(replies: Any) -> CancelNews | None:
        steps: dict[int, str] = {}
        for entry in replies[0]:
            number, _, what = entry.decode("utf-8", "replace").partition(" ")
            steps[int(number)] = what
        last = max(steps, default=seen)
        wanted = [steps.get(number) for number in range(seen + 1, last + 1)]
        if not wanted or None in wanted:
            return None
        signed = [(what[:1], what[1:]) for what in wanted if what]
        signs = {sign for sign, _ in signed}
        suspects = _texts(replies[1]) if "!" in signs else None
        paused = _texts([*replies[2], *replies[3]]) if "|" in signs else None
        return CancelNews(last, [one for one in signed if one[0] not in "!|"], suspects, paused)

    asked = ("LRANGE", keys.cancel_log, 0, most - 1)
    return commands(asked, ("SMEMBERS", keys.suspects), *_paused(keys), decode=read)


def _texts(reply: Any) -> frozenset[str]:
    return frozenset(one.decode("utf-8", "replace") for one in reply)


def _is_text(jid: str) -> bool:
    """Whether a job can have been cancelled by this id; by half a surrogate pair none was."""
    try:
        return bool(jid.encode())
    except UnicodeEncodeError:
        return False


# Where an iterable job stands: Sidekiq's hash of each such job (wire format, section 16). An effect of the job's end
# (``uniterate``) removes it, so that no kill can come between the two.


class State(NamedTuple):
    """``executions`` begun so far, ``cursor`` as JSON text (None: from the start), ``run_time`` of those that ended."""

    executions: int = 0
    cursor: bytes | None = None
    run_time: float = 0.0
    cancelled: bool = False


def load_state(keys: Keys, jid: str) -> Call[State]:
    """Where the job stands; an empty ``State`` when nothing was saved. PayloadError when somebody broke it."""

    def read(flat: list[bytes]) -> State:
        found = {flat[i]: flat[i + 1] for i in range(0, len(flat), 2)}
        try:
            executions, run_time = int(found.get(b"ex") or 0), float(found.get(b"rt") or 0)
        except ValueError:
            raise PayloadError(f"{keys.iteration(jid)} cannot be read: {found!r}; delete it to start anew") from None
        return State(executions, found.get(b"c"), run_time, b"cancelled" in found)

    return command("HGETALL", keys.iteration(jid), decode=read)


def save_state(
    keys: Keys, flight: str, payload: bytes, jid: str, executions: int, cursor: bytes, run_time: float
) -> Call[int]:
    """Write down where the job stands that lies as ``payload`` in the in-flight list ``flight``; 1 when it was
    cancelled, 0 when not, ``LATE``."""
    args: list[Any] = [executions, cursor, f"{run_time:.6f}".rstrip("0").rstrip("."), _STATE_LIFE, payload]
    return script(_ITERATE, [keys.iteration(jid), flight], args, int, again=True)


def save_checkpoint(keys: Keys, flight: str, payload: bytes, jid: str, state: bytes) -> Call[bool]:
    """Keep how far the job has come that lies as ``payload`` in the in-flight list ``flight``; False: it does not."""
    return script(_CHECKPOINT, [flight, keys.checkpoint(jid)], [payload, state, _STATE_LIFE], bool, again=True)


def load_checkpoint(keys: Keys, jid: str) -> Call[bytes | None]:
    """What was kept last, JSON; None: nothing."""
    return command("GET", keys.checkpoint(jid))
