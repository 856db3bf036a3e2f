"""Batches and tracked jobs as calls: make, push, close, release, retry, look, audit. What each promises stands in
``lua/``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Literal, NamedTuple

from henchman.errors import BatchClosed, BatchError, HistoryFull, UnknownBatch
from henchman.store.admission import answers_of
from henchman.store.call import Arg, Call, command, commands, load, script
from henchman.store.keys import Keys
from henchman.store.operations import NO_SLICE, OperationSlice, Turned
from henchman.store.queues import Stretch, raw, set_stretch

_MAKE = load("batch_make")
_PUSH = load("batch_push")
_CLOSE = load("batch_close")
_RELEASE = load("batch_release")
_RETRY = load("batch_retry")
_RESULTS = load("batch_results")
_NOTE = load("note")
_STARTED = load("started")

FULL = "the history stream is full: its recorder does not keep up, or the database is away"
PRODUCER_MS = 30_000  # the lease of who fills a batch; renewed each third of it
_FACTS = ("state", "why", "created", "open_for", "expires", "total", "children", "generation", "results")
_COUNTS = (
    *("n:blocked", "n:scheduled", "n:enqueued", "n:working", "n:retrying"),
    *("n:finished", "n:failed", "n:error", "n:cancelled", "n:expired"),
)


def make(keys: Keys, batch: str, fields: Mapping[str, Arg], record: bytes) -> Call[bool]:
    """Write down an open batch; ``fields`` as ``Keys.batch`` tells, ``record`` is the JSON for the history.

    False: it stands there already (so it may be sent again). BatchClosed when its parent takes nothing more.
    """

    def read(reply: Any) -> bool:
        if reply == b"PARENT":
            parent = _name(fields.get("parent", ""))
            raise BatchClosed(f"batch {parent} is complete or gone: no batch can become part of it")
        return bool(reply)

    args: list[Arg] = [batch, PRODUCER_MS, *chain.from_iterable(fields.items()), "record", record]
    return script(_MAKE, [keys.queues, keys.producer(batch)], args, read, again=True)


class TrackedPush(NamedTuple):
    """One job. ``when``: "" now, "+5" in five seconds, else a Unix time; behind "parked": once the batch is released.

    ``detail``: JSON for the history. A payload that is parked or due later has no ``enqueued_at``. ``ask``: JSON of a
    job with a key, see ``client/keyed.py``.
    """

    jid: str
    when: str
    payload: bytes
    detail: bytes
    ask: bytes = b""


def push(
    keys: Keys,
    batch: str,
    queue: str,
    jobs: Sequence[TrackedPush],
    *,
    member: str = "",
    lane: tuple[str, int] = ("", 0),
    keep: str = "",
) -> Call[int]:
    """Push jobs into ``queue`` (or the schedule) as members of ``batch``, "": tracked alone; how many were new to it.

    ``member``: the running job that adds to its own batch. ``lane``: whose push this is, and its number there: with
    it the call may be sent again. ``keep``: policy and bytes of the history, where no recorder has led yet. Raises
    UnknownBatch, BatchClosed, HistoryFull; then nothing was pushed.
    """

    args: list[Arg] = [batch, member, queue, *lane, keep, *(part for one in jobs for part in one)]
    again = bool(batch and lane[0])
    return script(_PUSH, [keys.queues, keys.queue(queue)], args, lambda reply: int(_taken(batch, reply)), again=again)


def push_keyed(
    keys: Keys,
    batch: str,
    queue: str,
    jobs: Sequence[TrackedPush],
    *,
    member: str = "",
    lane: tuple[str, int],
    keep: str = "",
) -> Call[list[list[str]]]:
    """As ``push`` for jobs with a key, and steps; the answers are those of ``admission.push``. It may be sent again.

    Also raises BatchError when another job has the name of a step.
    """

    def read(reply: Any) -> list[list[str]]:
        if isinstance(reply, bytes) and reply.startswith(b"STEP "):
            raise BatchError(
                f"workflow {batch} has a step {_name(reply[5:])!r} that runs another job, or has other arguments, and "
                "a name is one step: choose another name="
            )
        return answers_of(_taken(batch, reply))

    args: list[Arg] = [batch, member, queue, *lane, keep, *(part for one in jobs for part in one)]
    names = [keys.queues, keys.queue(queue)]
    return script(_PUSH, names, args, read, again=True)


def _taken(batch: str, reply: Any) -> Any:
    """What was answered to a push, unless nothing of it was taken."""
    if reply == b"ABSENT":
        raise unknown(batch)
    if reply == b"CLOSED":
        raise BatchClosed(f"batch {batch} takes no more jobs: it was closed, cancelled or has expired")
    if reply == b"FULL":
        raise HistoryFull(FULL)
    return reply


def _name(value: Arg) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _names(replies: Sequence[bytes | None]) -> list[str]:
    return [_name(one or b"") for one in replies]


def unknown(batch: str) -> UnknownBatch:
    """The error that says so."""
    return UnknownBatch(f"there is no batch {batch!r} on this server (any more)")


def close(keys: Keys, batch: str, why: str = "") -> Call[str]:
    """No more jobs; its state now. ``why``: "", aborted, cancelled, expired, invalidated. Raises UnknownBatch."""

    def read(reply: bytes) -> str:
        if reply == b"ABSENT":
            raise unknown(batch)
        return reply.decode()

    return script(_CLOSE, [keys.queues, keys.producer(batch)], [batch, why], read, again=True)


def release(keys: Keys, batch: str, most: int) -> Call[int]:
    """Let up to ``most`` parked jobs go into their queues, or nowhere if the batch did not end well; how many are
    parked still."""
    return script(_RELEASE, [keys.queues], [batch, most], int, again=True)


class Retried(NamedTuple):
    """A dead job of a batch that is pushed once more: as it is kept, and as it goes into ``queue``. ``relock``: the
    effects (JSON) that take its business key again."""

    jid: str
    queue: str
    old: bytes
    new: bytes
    relock: bytes = b""


def retry(keys: Keys, batch: str, jobs: Sequence[Retried], part: OperationSlice = NO_SLICE) -> Call[list[int]]:
    """Push dead jobs of a batch again; of each 1 it was pushed, 0 it is not among the dead, 2 another job has its key
    and it stays. After a lost answer what is not among the dead counts as pushed. Raises UnknownBatch; as ``part`` of
    an operation, in which it is counted, Turned where nothing is done."""

    def read(reply: Any) -> list[int]:
        if reply == b"ABSENT":
            raise unknown(batch)
        if isinstance(reply, bytes):
            raise Turned(reply.decode())
        return list(reply)

    names = [keys.queues, keys.operation(part.number), keys.doer(part.number)]
    args: list[Any] = [batch, part.identity, part.lease_ms, part.name]
    args += [*chain.from_iterable((one.queue, one.jid, one.old, one.new, one.relock) for one in jobs)]
    return script(_RETRY, names, args, read, again=True, decode_again=lambda told: [n or 1 for n in read(told)])


def note(keys: Keys, effects: Sequence[bytes]) -> Call[int]:
    """Carry out lists of effects that come with no job's end: started, progress, messages, given back."""
    return script(_NOTE, [keys.queues], list(effects), int, again=False)


class Started(NamedTuple):
    """A run: the in-flight list it came from, its payload there, and the effects of its start."""

    flight: str
    payload: bytes
    effects: bytes


def started(keys: Keys, runs: Sequence[Started]) -> Call[int]:
    """Write down that jobs run, as far as they are still in flight; how many were."""
    flights = sorted({one.flight for one in runs})
    index = {name: place for place, name in enumerate(flights, 1)}
    args: list[Arg] = []
    for one in runs:
        args += (index[one.flight], one.payload, one.effects)
    return script(_STARTED, [keys.queues, *flights], args, int, again=False)


class Facts(NamedTuple):
    """What stands of a batch: its hash, whether somebody fills it now, its reasons, all as text; the server's time."""

    facts: dict[str, str]
    filled: bool
    reasons: dict[str, int]
    now: float


def _table(reply: Any) -> dict[str, str]:
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    return {name.decode("utf-8", "replace"): value.decode("utf-8", "replace") for name, value in pairs}


def facts(keys: Keys, batch: str) -> Call[Facts]:
    """Everything that is known of a batch in one look, whatever its size; empty facts when there is no such batch."""
    return commands(("TIME",), *_facts_of(keys, batch), decode=lambda replies: _facts(*replies))


def _facts_of(keys: Keys, batch: str) -> tuple[tuple[Arg, ...], ...]:
    key = keys.batch(batch)
    return ("HGETALL", key), ("EXISTS", keys.producer(batch)), ("HGETALL", key + ":reasons")


def _facts(time: Any, told: Any, filled: int, reasons: Any) -> Facts:
    counts = {name: int(count) for name, count in _table(reasons).items()}
    return Facts(_table(told), bool(filled), counts, int(time[0]) + int(time[1]) / 1e6)


def several(keys: Keys, batches: Sequence[str]) -> Call[list[tuple[Facts, int]]]:
    """``facts`` of each of these batches, at least one, and how many steps it has."""
    parts: list[tuple[Arg, ...]] = [("TIME",)]
    for one in batches:
        parts += [*_facts_of(keys, one), ("HLEN", keys.batch(one) + ":names")]

    def read(replies: Any) -> list[tuple[Facts, int]]:
        starts = range(1, len(replies), 4)
        return [(_facts(replies[0], *replies[at : at + 3]), int(replies[at + 3])) for at in starts]

    return commands(*parts, decode=read)


class Glimpse(NamedTuple):
    """As much of a batch as says whether it is looked for; empty texts of one that is gone."""

    state: str
    why: str
    description: str
    tags: str
    bad: int
    steps: int


def glimpses(keys: Keys, batches: Sequence[str]) -> Call[list[Glimpse]]:
    """A short look at each of these batches, at least one."""
    fields = ("state", "why", "description", "tags", "n:failed", "n:error", "bad_children")
    parts: list[tuple[Arg, ...]] = []
    for one in batches:
        parts += [("HMGET", keys.batch(one), *fields), ("HLEN", keys.batch(one) + ":names")]

    def read(replies: Any) -> list[Glimpse]:
        found = []
        for told, steps in zip(replies[::2], replies[1::2], strict=True):
            state, why, description, tags, *bad = (_name(one or b"") for one in told)
            found.append(Glimpse(state, why, description, tags, sum(int(one or 0) for one in bad), int(steps)))
        return found

    return commands(*parts, decode=read)


def live(keys: Keys, batch: str, cursor: int, step: int = 500) -> Call[tuple[int, dict[str, str]]]:
    """One step of a scan over the members that are not settled: (next cursor, 0 at the end; jid → status)."""
    return command(
        "HSCAN",
        keys.batch(batch) + ":jobs",
        cursor,
        "COUNT",
        step,
        decode=lambda reply: (int(reply[0]), _table(reply[1])),
    )


def dead(keys: Keys, batch: str, first: int, most: int) -> Call[Stretch]:
    """Payloads of jobs of the batch that gave up, oldest first, from rank ``first`` on, as far as 4 MB go."""
    return set_stretch(keys.batch(batch) + ":dead", first, most)


class ResultRows(NamedTuple):
    """Some rows of a batch that keeps results, and how many it has. A row: the name of its job, its jid, and a text.

    The text is ``=`` and the JSON that the job returned, ``!`` and a JSON object that says why there is none, or ``?``
    and the status of a job that has not ended; ``?`` alone: the job has ended, and nothing is known of that.
    """

    total: int
    rows: list[tuple[str, str, bytes]]


def results(keys: Keys, batch: str, first: int, most: int) -> Call[ResultRows]:
    """Rows of a batch in the order in which they were pushed, from number ``first`` on, as far as 4 MB go.

    Raises UnknownBatch; BatchError when the batch keeps no results.
    """

    def read(reply: Any) -> ResultRows:
        if reply == b"ABSENT":
            raise unknown(batch)
        if reply == b"NONE":
            raise BatchError(f"batch {batch} keeps no results: make it with app.batch(…, results=True)")
        total, names, page = reply
        by_number = {number: _name(name) for name, number in zip(names[::2], names[1::2], strict=True)}
        pairs = [(row.partition(b" "), text) for row, text in zip(page[::2], page[1::2], strict=True)]
        return ResultRows(int(total), [(by_number.get(row[0], ""), _name(row[2]), text) for row, text in pairs])

    return script(_RESULTS, [keys.queues], [batch, first, most], read, again=True)


def kept_results(keys: Keys, batch: str, jids: Sequence[str]) -> Call[list[bytes | None]]:
    """What a batch keeps of how these jobs ended, at least one, as in ``ResultRows``; None of one that has not."""
    return command("HMGET", keys.batch(batch) + ":results", *jids)


def steps(keys: Keys, batch: str, names: Sequence[str]) -> Call[list[tuple[str, str] | None]]:
    """The jid and the job of each of these steps of a workflow, at least one; None of one that is not there."""

    def read(reply: list[bytes | None]) -> list[tuple[str, str] | None]:
        parts = [None if one is None else _name(one).partition(" ") for one in reply]
        return [None if one is None else (one[0], one[2]) for one in parts]

    return command("HMGET", keys.batch(batch) + ":names", *names, decode=read)


def step_names(keys: Keys, batch: str) -> Call[dict[str, str]]:
    """The step that each job of a workflow is, by the jid; nothing of any other batch."""

    def read(reply: Any) -> dict[str, str]:
        return {job.partition(" ")[0]: step for step, job in _table(reply).items()}

    return command("HGETALL", keys.batch(batch) + ":names", decode=read)


class WorkflowSteps(NamedTuple):
    """All steps of a workflow, by name: "<jid> <name of its job>", the steps it waits for as JSON, how it ended as
    ``lua/lib/needs.lua`` writes it. A step that waits for none, or has not ended, is not in the last two."""

    names: dict[str, str]
    after: dict[str, str]
    ended: dict[str, str]


def workflow_steps(keys: Keys, batch: str) -> Call[WorkflowSteps]:
    """Everything that is kept of the steps of a workflow; nothing of any other batch."""
    parts = [("HGETALL", keys.batch(batch) + one) for one in (":names", ":after", ":steps")]
    return commands(*parts, decode=lambda replies: WorkflowSteps(*map(_table, replies)))


def members(
    keys: Keys, batch: str, jids: Sequence[str], ended: Sequence[str]
) -> Call[tuple[list[str], list[bytes | None]]]:
    """The status of each of ``jids``, at least one, that has not ended, "" of others; and what is kept of how each of
    ``ended``, at least one, did, as in ``ResultRows``."""
    key = keys.batch(batch)
    parts: list[tuple[Arg, ...]] = [("HMGET", key + ":jobs", *map(raw, jids))]
    parts.append(("HMGET", key + ":results", *map(raw, ended)))
    return commands(*parts, decode=lambda replies: (_names(replies[0]), list(replies[1])))


def newest(keys: Keys, first: int, most: int) -> Call[list[str]]:
    """Ids of batches that the server knows, the newest first, from rank ``first`` on."""
    return command("ZREVRANGE", keys.batches, first, first + most - 1, decode=_names)


def newest_page(keys: Keys, first: int, most: int) -> Call[tuple[list[str], int]]:
    """``newest``, and how many there are."""
    parts = ("ZREVRANGE", keys.batches, first, first + most - 1), ("ZCARD", keys.batches)
    return commands(*parts, decode=lambda replies: (_names(replies[0]), int(replies[1])))


def states(keys: Keys, batches: Sequence[str]) -> Call[list[str]]:
    """The state of each of these batches, at least one; "" of one that is gone."""
    return commands(*(("HGET", keys.batch(one), "state") for one in batches), decode=_names)


def statuses(keys: Keys, batches: Sequence[str], jid: str) -> Call[list[str]]:
    """The status of a job that is not settled in each of these batches, at least one; "" where it is no member."""
    parts = [("HGET", keys.batch(one) + ":jobs", raw(jid)) for one in batches]
    return commands(*parts, decode=_names)


def renew_producer(keys: Keys, batches: Sequence[str]) -> Call[list[str]]:
    """Whoever fills these batches, at least one, lives; those of them whose lease had run out, and stays so."""

    def read(replies: list[bytes | None]) -> list[str]:
        return [one for one, reply in zip(batches, replies, strict=True) if reply is None]

    return commands(*(("SET", keys.producer(one), "1", "XX", "PX", PRODUCER_MS) for one in batches), decode=read)


def take_producer(keys: Keys, batches: Iterable[str]) -> Call[Any]:
    """Whoever fills these batches lives after all."""
    return commands(*(("SET", keys.producer(one), "1", "PX", PRODUCER_MS) for one in batches))


# What the auditor of batches asks.


def oldest(keys: Keys, first: int, most: int) -> Call[list[str]]:
    """Batches by age, from rank ``first`` on."""
    return command("ZRANGE", keys.batches, first, first + most - 1, decode=_names)


def having(keys: Keys, batches: Sequence[str], part: Literal["dead", "parked"]) -> Call[list[str]]:
    """Those of ``batches`` (at least one) that have jobs which gave up, or which wait for the batch's release."""

    def read(replies: Any) -> list[str]:
        return [one for one, found in zip(batches, replies, strict=True) if found]

    return commands(*(("EXISTS", f"{keys.batch(one)}:{part}") for one in batches), decode=read)


def forget(keys: Keys, batches: Sequence[str]) -> Call[Any]:
    """Strike batches that are gone off the list of all, and free the results that they kept."""
    return commands(("ZREM", keys.batches, *batches), ("UNLINK", *(keys.batch(one) + ":results" for one in batches)))


class Glance(NamedTuple):
    """A batch as the auditor sees it; ``mark`` changes whenever something of it moves. Times are Unix seconds.
    ``results``: it keeps what its jobs return."""

    state: str
    why: str
    created: float
    ends_open: float
    expires: float
    live: int
    children: int
    filled: bool
    parked: int
    results: bool
    mark: tuple[Any, ...]


def glance(keys: Keys, batches: Sequence[str]) -> Call[tuple[float, list[Glance | None]]]:
    """The server's time, and each of these batches; None: it is gone."""
    parts: list[tuple[Any, ...]] = [("TIME",)]
    for one in batches:
        key = keys.batch(one)
        parts.append(("HMGET", key, *_FACTS, *_COUNTS))
        parts += [("EXISTS", keys.producer(one)), ("LLEN", key + ":parked"), ("HLEN", key + ":jobs")]

    def read(replies: Any) -> tuple[float, list[Glance | None]]:
        seconds, micro = replies[0]
        found = [_glance(*replies[at : at + 4]) for at in range(1, len(replies), 4)]
        return int(seconds) + int(micro) / 1e6, found

    return commands(*parts, decode=read)


def _glance(told: Any, filled: int, parked: int, live: int) -> Glance | None:
    if told[0] is None:
        return None
    state, why, created, open_for, expires, _, children, _, results = (one.decode() if one else "" for one in told[:9])
    return Glance(
        state=state,
        why=why,
        created=float(created),
        ends_open=float(created) + float(open_for or 0),
        expires=float(expires) if expires else float("inf"),
        live=int(live),
        children=int(children or 0),
        filled=bool(filled),
        parked=int(parked),
        results=results == "1",
        mark=(*told, live),
    )


def holders(keys: Keys) -> Call[list[str]]:
    """Every process that may hold something: the living, the dead, those whose work is being given back."""
    return commands(
        ("ZRANGE", keys.identities, 0, -1),
        ("ZRANGE", keys.tombs, 0, -1),
        ("SMEMBERS", keys.rescues),
        decode=lambda replies: sorted({one.decode("utf-8", "replace") for reply in replies for one in reply}),
    )


def in_flight_lists(keys: Keys, identities: Sequence[str]) -> Call[list[str]]:
    """The in-flight lists of these processes."""

    def read(replies: Any) -> list[str]:
        return [one.decode("utf-8", "replace") for reply in replies for one in reply]

    return commands(
        *(("SMEMBERS", keys.lists_of(one)) for one in identities),
        ("SMEMBERS", keys.lists_of("")),
        decode=read,
    )
