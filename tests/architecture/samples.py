"""A sample of every call that is built on a Lua script: whoever adds such a function adds its samples here.

``"module.function"`` below ``henchman.store`` → a list of samples; each takes the ``Keys`` to use and gives the call.
A script whose header has a group in brackets needs a sample that repeats it at least twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from henchman.store import (
    admission,
    batches,
    cron,
    failures,
    fair,
    history,
    jobs,
    leases,
    limits,
    locks,
    needs,
    operations,
    ordered,
    ordered_people,
    outbox,
    pauses,
    queues,
)
from henchman.store.call import Call
from henchman.store.keys import Keys
from henchman.work.outcome import Outcome
from support.store import fetching

ME = "host:1:0123456789ab"
DEAD: dict[str, Any] = {"dead_max": 10, "dead_timeout": 60.0}


def _uniterate(keys: Keys, *jids: str) -> bytes:
    return b"[%b]" % b",".join(b'["uniterate","%b"]' % keys.iteration(jid).encode() for jid in jids)


def _failure(group: str) -> dict[str, Any]:
    facts = {"id": group, "error": "E", "message": "", "place": "", "trace": [], "count": 1, "first": 7e8, "last": 7e8}
    return facts | {"jid": "j", "hours": {"194444": 1}, "jobs": {"a": 1}, "queues": {"a": 1}}


def _settle(keys: Keys) -> Call[Any]:
    pairs = [(keys.in_flight(ME, 1, name), keys.queue(name)) for name in "ab"]
    units = [
        jobs.Settlement(1, b"{}", "done", effects=_uniterate(keys, "a")),
        jobs.Settlement(2, b"{}", "retry", b"{}", 3.5, b"[]"),
        jobs.Settlement(2, b"{}", "done", effects=_uniterate(keys, "b")),
    ]
    return jobs.settle(keys, ME, pairs, units, lease_ms=30_000, day="2026-01-01", **DEAD)


def _operate(keys: Keys) -> Call[Any]:
    moves = [jobs.Move(b"1", b"1", "a"), jobs.Move(b"2", delete=True, effects=_uniterate(keys, "a", "b"))]
    return operations.operate(keys, "7", ME, "me:1", keys.retry, moves, looked=2, **DEAD)


def _move(keys: Keys) -> Call[Any]:
    moves = [
        jobs.Move(b"1", b"1", "a"),
        jobs.Move(b"2", b"2", "b"),
        jobs.Move(b"3", b"3"),
        jobs.Move(b"4", delete=True, effects=_uniterate(keys, "a", "b")),
        jobs.Move(b"5", later=1.5),
        jobs.Move(b"6", b"{}", "a", effects=b'[["await",[["s","k",60]],1,"j",0]]', waits=True),
    ]
    return jobs.move(keys, keys.retry, moves, **DEAD)


def _deliver(keys: Keys) -> Call[Any]:
    entries = [jobs.Delivery(queue, at, 2.5, b"{}") for queue, at in (("a", None), (None, 1.5), ("b", None))]
    return jobs.deliver(keys, "0123456789abcdef01234567", entries)


def _charge(keys: Keys) -> Call[Any]:
    effects = _uniterate(keys, "a", "b")
    flight = keys.in_flight(ME, 1, "a")
    return jobs.charge(
        keys,
        flight,
        "j",
        b"2026-01-01T00:00:00Z host:1:0123456789ab it ended",
        b"{}",
        b"{}",
        alone=True,
        effects=effects,
        notice=b"{}",
        **DEAD,
    )


def _end_lost(keys: Keys) -> Call[Any]:
    outcome = Outcome("retry", b"{}", 2.5)
    return jobs.end_lost(
        keys, keys.in_flight(ME, 1, "a"), b"{}", outcome, "", _uniterate(keys, "a"), day="2026-01-01", **DEAD
    )


def _push(keys: Keys) -> Call[Any]:
    return ordered.push(keys, "a", "min", [ordered.Push(b"1", "", "", b"{}"), ordered.Push(b"2", "+5", "1.5", b"{}")])


def _push_tracked(keys: Keys) -> Call[Any]:
    rows = [ordered.Push(b"1", "", "", b"{}"), ordered.Push(b"2", "+5", "1.5", b"{}")]
    return ordered.push_tracked(
        keys, "a", "min", ordered.RecordHead("job", "0123456789abcdef01", "strict 1000000"), rows
    )


def _settle_ids(keys: Keys, *, tracked: bool = False) -> Call[Any]:
    verdicts = [ordered.Verdict(1, b"1", "done"), ordered.Verdict(1, b"2", "retry", 15.0, 0, "why")]
    return ordered.settle(
        keys, ME, 1, "a", verdicts, collapse="min", lease_ms=30_000, day="2026-01-01", tracked=tracked
    )


def _free_ids(keys: Keys) -> Call[Any]:
    held = [(b"1", b"7"), (b"2", b"7")]
    return ordered.free(keys, ME, keys.held(ME, 1, "a"), "a", held, charge=True, alone=False)


def _batch_push(keys: Keys) -> Call[Any]:
    return batches.push(keys, "b", "q", [batches.TrackedPush(jid, "", b"{}", b"{}") for jid in "abc"], member="m")


def _outbox_push(keys: Keys) -> Call[Any]:
    rows = [outbox.OutboxPush(jid, "", "q", "", b"{}", "", "", b"") for jid in "ab"]
    return outbox.push(keys, "o", ME, rows)


def _outbox_push_keyed(keys: Keys) -> Call[Any]:
    ask = ASK + b',"key":"k","mark":""}'
    rows = [outbox.OutboxPush(jid, "", "q", "", b'{"jid":"%b"}' % jid.encode(), "", "", b"{}", ask) for jid in "ab"]
    return outbox.push(keys, "o", ME, rows)


ASK = b'{"scope":"s","phases":"w","conflict":"skip"'


def _keyed_push(keys: Keys) -> Call[Any]:
    rows = [admission.KeyedPush(jid, "", b'{"jid":"%b"}' % jid.encode(), "0" * 8, jid) for jid in ("a", "b")]
    return admission.push(keys, "q", ASK + b"}", [*rows, rows[0]._replace(needs=b'[["s","k",60]]')], ("me", 1))


def _park_ends(keys: Keys) -> Call[Any]:
    ends = [
        needs.ParkEnd("a", "queue", "", b"q\n\nneeds\n\n{}", b"{}", lines=[needs.line("s", "k")]),
        needs.ParkEnd("b", "dead", "", b"q\n\nneeds\n\n{}", b"{}", _uniterate(keys, "b")),
    ]
    return needs.park_ends(keys, ends, **DEAD)


def _batch_push_keyed(keys: Keys) -> Call[Any]:
    rows = [
        batches.TrackedPush(
            jid, "", b'{"jid":"%b"}' % jid.encode(), b"{}", ASK + b',"key":"%b","mark":""}' % jid.encode()
        )
        for jid in ("ka", "kb")
    ]
    return batches.push_keyed(keys, "b", "q", rows, lane=("me", 1), member="m")


def _started(keys: Keys) -> Call[Any]:
    effects = _uniterate(keys, "a", "b")
    return batches.started(keys, [batches.Started(keys.in_flight(ME, 1, name), b"{}", effects) for name in "abc"])


def _batch_retry(keys: Keys) -> Call[Any]:
    return batches.retry(keys, "b", [batches.Retried(name, name, b"1", b"2") for name in "abc"])


def _batch_hold(keys: Keys) -> Call[Any]:
    lists = [(keys.in_flight(ME, 1, name), keys.queue(name)) for name in "ab"]
    return pauses.hold(
        keys, ME, lists, [pauses.PausedJob(pair, "b", "b", "j", b"{}", b"{}") for pair in (1, 2)], 30_000
    )


def _claim(keys: Keys) -> Call[Any]:
    lists = [(keys.in_flight(ME, 1, name), keys.queue(name)) for name in "abc"]
    jobs = [locks.Claimant(b"{}", f"j{pair}", "k", pair, "s", "wr") for pair in (1, 2, 3)]
    return locks.claim(keys, ME, lists, jobs, 30_000)


SAMPLES: dict[str, list[Callable[[Keys], Call[Any]]]] = {
    "batches.make": [lambda keys: batches.make(keys, "b", {"description": "d", "tags": "[]"}, b"{}")],
    "batches.push": [_batch_push],
    "batches.push_keyed": [_batch_push_keyed],
    "admission.push": [_keyed_push],
    "batches.close": [lambda keys: batches.close(keys, "b", "aborted")],
    "batches.release": [lambda keys: batches.release(keys, "b", 100)],
    "batches.retry": [_batch_retry],
    "pauses.pause": [lambda keys: pauses.pause(keys, "b", queues.Pause(at=1.0))],
    "pauses.unpause": [lambda keys: pauses.unpause(keys, "b")],
    "pauses.hold": [_batch_hold],
    "batches.results": [lambda keys: batches.results(keys, "b", 0, 1000)],
    "batches.started": [_started],
    "batches.note": [lambda keys: batches.note(keys, [_uniterate(keys, "a", "b"), b"[]"])],
    "history.trim": [lambda keys: history.trim(keys, "1-0", 10)],
    "jobs._cancel": [
        lambda keys: jobs.cancel(keys, "0123456789abcdef01234567"),
        lambda keys: jobs.cancel_batch(keys, "b"),
    ],
    "jobs.uncancel": [lambda keys: jobs.uncancel(keys, ["a", "batch:b"])],
    "jobs.save_checkpoint": [
        lambda keys: jobs.save_checkpoint(keys, keys.in_flight(ME, 1, "a"), b"{}", "0123456789abcdef01234567", b"17")
    ],
    "jobs.save_state": [
        lambda keys: jobs.save_state(keys, keys.in_flight(ME, 1, "a"), b"{}", "0123456789abcdef01234567", 2, b"17", 4.5)
    ],
    "cron.put": [lambda keys: cron.put(keys, "code", [("a", b"{}"), ("b", b"{}")])],
    "cron.remove": [lambda keys: cron.remove(keys, "a")],
    "cron.pause_or_resume": [lambda keys: cron.pause_or_resume(keys, "a", "pause")],
    "cron.look": [lambda keys: cron.look(keys, ME, 60_000, 1.5, ["a", "b"])],
    "cron.tick": [lambda keys: cron.tick(keys, b"1", [cron.Tick("a", 1.0, "q", "j", b"{}", 5.0), cron.Tick("b", 2.0)])],
    "jobs.charge": [_charge],
    "jobs.end_lost": [_end_lost],
    "queues.remove": [lambda keys: queues.remove(keys, "a", b"{}", _uniterate(keys, "a", "b"))],
    "queues.bring_forward": [lambda keys: queues.bring_forward(keys, "a", b"{}")],
    "queues.forget_trimmed": [lambda keys: queues.forget_trimmed(keys, b"{}", _uniterate(keys, "a", "b"))],
    "locks.claim": [_claim],
    "locks.look": [lambda keys: locks.look(keys, "s", "k", 604_800)],
    "locks.unlock": [lambda keys: locks.unlock(keys, "r", "s", "k", "j")],
    "limits.declare": [lambda keys: limits.declare(keys, [("c", "a", 2, 0.0), ("l", "b", 3, 1.0)])],
    "limits.resize": [lambda keys: limits.resize(keys, "a", 2, None)],
    "limits.hand": [lambda keys: limits.hand(keys, "a", "x")],
    "limits.enter": [lambda keys: limits.enter(keys, "~h:1:0", "a", "x", 2, 0, 30_000, has=True)],
    "limits.leave": [lambda keys: limits.leave(keys, "~h:1:0", "a", "x")],
    "limits.leave_lapsed": [lambda keys: limits.leave_lapsed(keys, [(b"~h:1:0\na\nx", b"7.5")] * 2)],
    "needs.park_ends": [_park_ends],
    "needs.blocked_page": [lambda keys: needs.blocked_page(keys, 0)],
    "needs.blocked": [lambda keys: needs.blocked(keys, ["a", "b"])],
    "needs.waiting_on": [lambda keys: needs.waiting_on(keys, "s", "k")],
    "needs.need_states": [lambda keys: needs.need_states(keys, [("s", "k", 60), ("", "j", 60)])],
    "needs.release_page": [lambda keys: needs.release_page(keys, b"1\ns\nk", 100)],
    "needs.decided": [lambda keys: needs.decided(keys, b"over\n\n0\ns\nk", [b"over\nj\n0\ns\nk", b"x"])],
    "queues.clear": [lambda keys: queues.clear(keys, "a", 9, {b"1": b"", b"2": _uniterate(keys, "a", "b")})],
    "jobs.deliver": [_deliver],
    "jobs.schedule": [lambda keys: jobs.schedule(keys, [(1.5, 0.0, b"{}"), (None, 30.0, b"{}")])],
    "jobs.fetch": [lambda keys: fetching(keys, ("a", 0), ("b", 5), count=10)],
    "jobs.settle": [_settle],
    "jobs.settle_oldest": [
        lambda keys: jobs.settle_oldest(keys, ME, keys.in_flight(ME, 1, "a"), (b"1", b"3"), 3, 30_000, "2026-01-01")
    ],
    "leases.adopt": [
        lambda keys: leases.adopt(
            keys,
            ME,
            keys.in_flight(ME, 0, "a"),
            "a",
            [(keys.in_flight(ME, 1, "a"), b"1"), (keys.in_flight(ME, 2, "a"), b"2")],
            30_000,
        )
    ],
    "fair.declare": [lambda keys: fair.declare(keys, "f", {"a": 0, "b": 1})],
    "fair.fetch": [
        lambda keys: fair.fetch(keys, ME, "f", keys.in_flight(ME, 1, "f"), count=10, extra=5, lease_ms=30_000)
    ],
    "fair.take_in": [lambda keys: fair.take_in(keys, "f")],
    "jobs.give_back": [lambda keys: jobs.give_back(keys, keys.in_flight(ME, 1, "a"), "a", 1000)],
    "jobs.rebase": [lambda keys: jobs.rebase(keys, keys.retry, b"1\n", b"2\n", [(b"a", 9.5, 4.5), (b"b", 9.5, 4.5)])],
    "jobs.rebase_page": [lambda keys: jobs.rebase_page(keys.schedule, "1", 0, 100, down=True, noted="delay")],
    "jobs.due": [lambda keys: jobs.due(keys, ME, 60_000, 100), lambda keys: jobs.due(keys, ME, 60_000, 0, 2.5)],
    "jobs.move": [_move],
    "operations.operate": [_operate],
    "operations.back": [lambda keys: operations.back(keys, "7", ME, "me:1", 50, first=True)],
    "operations.note_act": [lambda keys: operations.note_act(keys, b'{"at":1.0}', 100, b'{"at":0.5}')],
    "operations.turn": [lambda keys: operations.turn(keys, "7", "aborted", ("running", "undoing"))],
    "ordered_people.act": [lambda keys: ordered_people.act(keys, "a", "kill", [b"1", b"2"], only_failed=True)],
    "ordered_people.drop": [lambda keys: ordered_people.drop(keys, "a", b"1", "p", 1.5, b"{}")],
    "ordered_people.figures": [lambda keys: ordered_people.figures(keys, "a")],
    "ordered_people.look": [lambda keys: ordered_people.look(keys, "a", [b"1", b"2"], 10)],
    "ordered.push": [_push],
    "ordered.push_tracked": [_push_tracked],
    "ordered.claim": [
        lambda keys: ordered.claim(keys, ME, 1, "a", 10, 5, 1, 1000, 30_000),
        lambda keys: ordered.claim(keys, ME, 1, "a", 10, 5, 1, 1000, 30_000, tracked=True),
    ],
    "ordered.settle": [_settle_ids, lambda keys: _settle_ids(keys, tracked=True)],
    "ordered.free": [_free_ids],
    "ordered.move": [lambda keys: ordered.move(keys, "b", "a", "min", ids=[b"1", b"2"])],
    "queues.set_facets": [lambda keys: queues.set_facets(keys.dead, 0, newest_first=True)],
    "queues.set_stretch": [lambda keys: queues.set_stretch(keys.dead, 0, 100)],
    "queues.list_page": [lambda keys: queues.list_page(keys.queue("a"), -1, 100, leftwards=True, text="x")],
    "queues.ends": [lambda keys: queues.ends(keys, "abc")],
    "queues.queues_page": [lambda keys: queues.queues_page(keys, "abc", 0, 100)],
    "queues.read_each": [lambda keys: queues.read_each([keys.queue(one).encode() for one in "ab"], ["queue"] * 2)],
    "leases.join": [
        lambda keys: leases.join(keys, ME, [keys.in_flight(ME, 1, "a"), keys.in_flight(ME, 1, "b")], 30_000)
    ],
    "leases.renew": [lambda keys: leases.renew(keys, ME, 30_000)],
    "leases.renew_known": [lambda keys: leases.renew_known(keys, ME, 30_000)],
    "leases.watch": [lambda keys: leases.watch(keys, ME, 3_000)],
    "leases.entomb": [lambda keys: leases.entomb(keys, ME, force=False)],
    "outbox.push": [_outbox_push, _outbox_push_keyed],
    "outbox.forget": [lambda keys: outbox.forget(keys, "o", ME, ["a", "b"])],
    "leases.lead": [
        lambda keys: leases.lead(keys.auditor, ME, 1000),
        lambda keys: leases.lead(keys.recorder, ME, 1000, keys.history_on, "strict 1000"),
    ],
    "leases.holders": [lambda keys: leases.holders(keys, "abc", 250)],
    "leases.serving": [lambda keys: leases.serving(keys, "ü/a", 60.0, 0)],
    "leases.sizes": [lambda keys: leases.sizes({keys.in_flight(ME, 1, "a"): "list", keys.held(ME, 1, "b"): "hash"})],
    "leases.beat": [
        lambda keys: leases.beat(keys, ME, {"info": "{}", "busy": 1}, {"a": b"{}"}, old_work=True),
    ],
    "failures.group_errors": [
        lambda keys: failures.group_errors(keys, [_failure("a"), _failure("b"), _failure("a")], 7e8)
    ],
    "leases.leave": [lambda keys: leases.leave(keys, ME, [keys.in_flight(ME, 1, "a"), keys.in_flight(ME, 1, "b")])],
}
