"""Processes, running jobs and counts for people: every version's records, broken ones, and telling them something."""

from __future__ import annotations

import json

import pytest

from henchman.inspector.metrics import overview, rates
from henchman.inspector.processes import Processes, look_at_fleet, process_state
from henchman.store.call import run
from henchman.store.leases import Record
from support.garbage import GARBAGE, HOSTILE, READABLE, fill, payload
from support.store import ME, Store

RUBY_8 = (
    b'{"hostname":"vm","started_at":1795237943.09,"pid":21728,"tag":"mytag","capsules":{"default":{"concurrency":3,'
    b'"mode":"weighted","weights":{"default":2,"low":0}},"single":{"concurrency":1,"mode":"strict","weights":'
    b'{"single":0}}},"labels":["a"],"identity":"vm:21728:083cd4822b2f","version":"8.1.7","embedded":true}'
)
RUBY_6 = (
    b'{"hostname":"vm","started_at":1795237870.3,"pid":21070,"tag":"","concurrency":3,"queues":["default","low"],'
    b'"labels":[],"identity":"vm:21070:bb812c0a5878"}'
)


def crew(store: Store) -> Processes:
    return Processes(store)


def test_the_records_of_rubys_processes() -> None:
    facts = {"info": RUBY_8, "concurrency": b"4", "busy": b"2", "beat": b"1795237953.5", "rss": b"27120"}
    new = process_state(Record("vm:21728:083cd4822b2f", facts | {"rtt_us": b"45", "quiet": b"true"}, {}))
    assert new is not None
    assert (new.hostname, new.pid, new.tag, new.queues) == ("vm", 21728, "mytag", ("default", "low", "single"))
    assert (new.concurrency, new.busy, new.rss_kb, new.rtt_us, new.quiet) == (4, 2, 27120, 45, True)
    assert (new.labels, new.embedded, new.ours, new.beat_age(1795237954.0)) == (("a",), True, False, 0.5)
    old = process_state(Record("vm:21070:bb812c0a5878", {"info": RUBY_6, "busy": b"0"}, {}))
    assert old is not None
    assert (old.concurrency, old.queues, old.beat, old.quiet) == (3, ("default", "low"), None, False)
    assert process_state(Record("gone", {}, {})) is None


def test_garbage_is_read(store: Store) -> None:
    now = store.now()
    fill(store, now)
    states = {one.identity: one for one in crew(store).states()}
    assert set(states) == {"host:1:abc", "host:2:def", "ruby:9:r", HOSTILE, "\udcff:1:z"}
    assert states["host:1:abc"].tag == HOSTILE
    assert (states["host:2:def"].hostname, states["host:2:def"].pid, states["host:2:def"].busy) == ("host", 2, 0)
    assert states["ruby:9:r"].queues == ("low",)
    work = crew(store).work()
    assert [one.entry.jid for one in work] == ["w" * 24, "", "o" * 24, "", ""]
    assert (work[0].queue, work[0].run_at) == ("mail", int(now - 20))
    fleet = run(store.connections, look_at_fleet(store.keys))
    assert [one[:4] for one in fleet.work] == [one[:4] for one in work], "decoded one by one it is the same"
    assert [one.entry.payload for one in fleet.work[1:4]] == [one.entry.payload for one in work[1:4]]
    assert (len(fleet.work), fleet.work[-1].identity) == (5, work[-1].identity)


def test_a_process_that_says_something_else_is_read_anew() -> None:
    read = [process_state(Record("vm:1:a", {"info": info}, {})) for info in (RUBY_8, RUBY_6, RUBY_8)]
    assert [one and one.tag for one in read] == ["mytag", read[1] and read[1].tag, "mytag"]
    assert read[0] == read[2]
    assert read[1] is not None
    assert read[0] != read[1]
    far = b'{"tag": "' + b"x" * 100_000 + b'"}'
    assert (long := process_state(Record("vm:1:a", {"info": far}, {}))) is not None
    assert len(long.tag) == 100_000, "too long to be kept, and read nevertheless"


def test_work_of_old_versions_is_read(store: Store) -> None:
    store.ask("SADD", store.keys.processes, ME)
    store.ask("HSET", store.keys.process(ME), "info", RUBY_6)
    work = {"queue": "low", "payload": payload().decode(), "run_at": 5}
    store.ask("HSET", store.keys.workers(ME), "tid", json.dumps(work))
    (one,) = crew(store).work()
    assert (one.entry.jid, one.queue, one.run_at, one.identity) == ("1" * 24, "low", 5, ME)


@pytest.mark.parametrize(("verb", "signal"), [("quiet", b"TSTP"), ("stop", b"TERM"), ("dump", b"TTIN")])
def test_telling(store: Store, verb: str, signal: bytes) -> None:
    for name, version in ((ME, "henchman"), ("ruby:1:x", "8.1.7")):
        store.ask("SADD", store.keys.processes, name)
        store.ask("HSET", store.keys.process(name), "info", json.dumps({"version": version}))
    ours, ruby = crew(store).find(ME), crew(store).find("ruby:1:x")
    assert ours is not None
    assert ruby is not None
    assert not crew(store).tell(ruby, verb)
    assert store.ask("LRANGE", store.keys.signals("ruby:1:x"), 0, -1) == [signal]
    assert 0 < store.ask("TTL", store.keys.signals("ruby:1:x")) <= 60
    assert not crew(store).tell(ours, verb), "nobody listens: the word waits for the heartbeat"
    assert store.ask("LRANGE", store.keys.signals(ME), 0, -1) == [signal]
    store.ask("DEL", store.keys.signals(ME))
    line = store.connections.open()
    line.send("SUBSCRIBE", store.keys.control(ME))
    line.read()
    assert crew(store).tell(ours, verb)
    assert line.read()[2] == verb.encode()
    assert store.ask("EXISTS", store.keys.signals(ME)) == 0, "heard once, not twice"
    line.close()


def test_stats(store: Store) -> None:
    nothing = run(store.connections, overview(store.keys)).stats
    assert set(nothing) == {0}
    fill(store, store.now())
    every = len(GARBAGE) + len(READABLE)
    counts = run(store.connections, overview(store.keys)).stats
    assert (counts.processed, counts.failed, counts.enqueued) == (12345, 0, 5 * every)
    assert (counts.scheduled, counts.retries, counts.dead) == (every + 2, every + 2, every + 2)
    assert (counts.processes, counts.busy) == (5, 3)
    assert counts.overdue == every + 2, "the retries of three minutes ago, and two from before all time"


def test_a_silent_process_does_not_count(store: Store) -> None:
    store.ask("SADD", store.keys.processes, ME)
    store.ask("HSET", store.keys.process(ME), "info", "{}", "beat", store.now() - 3600, "busy", 4)
    assert (
        run(store.connections, overview(store.keys)).stats.processes,
        run(store.connections, overview(store.keys)).stats.busy,
    ) == (0, 0)
    assert crew(store).alive() == []


def test_rates_need_two_looks(store: Store) -> None:
    store.ask("SET", store.keys.stat_processed, 100)
    before = run(store.connections, overview(store.keys))
    store.ask("SET", store.keys.stat_processed, 150)
    after = run(store.connections, overview(store.keys))._replace(at=before.at + 10)
    assert rates(before, after) == {"processed": 5.0, "failed": 0.0}
    assert rates(after, before) == {"processed": 0.0, "failed": 0.0}
