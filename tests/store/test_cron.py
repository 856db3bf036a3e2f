"""The scripts of crons on a real server: each tick once, and no change gets lost."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from henchman.store import cron, history
from support.store import Store

FIRST, SECOND = b'{"timing":"every 5"}', b'{"timing":"every 7"}'
LEAD = 60_000


def put(store: Store, name: str, definition: bytes = FIRST, origin: Literal["code", "live"] = "code") -> int:
    [status] = store.run(cron.put(store.keys, origin, [(name, definition)]))
    return status


def tick(store: Store, *ticks: cron.Tick, revision: bytes | None = None) -> list[Any] | None:
    return store.run(cron.tick(store.keys, stored(store).revision if revision is None else revision, ticks)).statuses


def stored(store: Store) -> cron.Stored:
    return store.run(cron.read(store.keys))


def look(store: Store, who: str = "a", *names: str, handled: float | None = None, lease_ms: int = LEAD) -> cron.Look:
    return store.run(cron.look(store.keys, who, lease_ms, handled, names))


def age(store: Store, key: str, name: str, seconds: float) -> None:
    """Make what the server wrote down older than it is."""
    store.ask("ZINCRBY", key, -seconds, name)


def test_a_tick_is_enqueued_once_whoever_sends_it(store: Store) -> None:
    put(store, "n")
    age(store, store.keys.cron_ticks, "n", 100)
    now = store.now()
    first = cron.Tick("n", now - 5, "q", "j1", b"1")
    assert tick(store, first) == [1]
    assert tick(store, first) == [0]
    assert tick(store, cron.Tick("n", now - 6, "q", "j0", b"0"), cron.Tick("n", now - 4, "q", "j2", b"2")) == [0, 1]
    assert store.queue("q") == [b"1", b"2"]
    assert set(store.ask("SMEMBERS", "queues")) == {b"q"}
    [past] = store.run(cron.past(store.keys, ["n"], 5))
    assert [(one.jid, round(one.planned - now)) for one in past] == [("j2", -4), ("j1", -5)]


def test_a_tracked_tick_is_written_down_with_its_push(store: Store) -> None:
    put(store, "n")
    age(store, store.keys.cron_ticks, "n", 100)
    now = store.now()
    one = cron.Tick("n", now - 6, "q", "j1", b"1", 0.0, b'{"class":"c"}')
    assert tick(store, one) == [1]
    assert store.ask("EXISTS", store.keys.history) == 0, "history is off"
    store.run(history.turn_on(store.keys, "strict", 1_000_000))
    plain = cron.Tick("n", now - 4, "q", "j3", b"3")
    assert tick(store, one._replace(planned=now - 5, jid="j2"), plain, one) == [1, 1, 0]
    [(_, row)] = store.ask("XRANGE", store.keys.history, "-", "+")
    told = dict(zip(*[iter(row)] * 2, strict=True))
    assert (told[b"j"], told[b"s"], told[b"d"]) == (b"j2", b"enqueued", b'{"class":"c"}')
    assert int(store.ask("GET", store.keys.history_bytes)) == history.size_of(row)
    store.ask("SET", store.keys.history, "broken")
    assert tick(store, one._replace(planned=now - 3, jid="j4")) == [1], "a broken stream stops no cron"
    assert len(store.queue("q")) == 4


def test_what_is_not_due_by_the_servers_clock_waits(store: Store) -> None:
    put(store, "n")
    assert tick(store, cron.Tick("n", store.now() + 60, "q", "j", b"1")) == [-1]
    assert store.queue("q") == []


def test_a_tick_without_a_payload_is_passed_over(store: Store) -> None:
    put(store, "n")
    age(store, store.keys.cron_ticks, "n", 100)
    planned = store.now() - 5
    assert tick(store, cron.Tick("n", planned)) == [1]
    assert stored(store).last["n"] == pytest.approx(planned, abs=0.001)
    assert store.all_keys().isdisjoint({"queues", "queue:-", store.keys.cron_past("n")})


def test_a_refused_push_changes_nothing_and_stops_no_other(store: Store) -> None:
    for name in ("n", "other"):
        put(store, name)
        age(store, store.keys.cron_ticks, name, 100)
    store.ask("SET", "queue:bad", "no list")
    now = store.now()
    before = stored(store).last["n"]
    refused, held, fine = tick(
        store,
        cron.Tick("n", now - 5, "bad", "j", b"1"),
        cron.Tick("n", now - 4, "q", "j", b"2"),
        cron.Tick("other", now - 4, "q", "j", b"3"),
    )  # type: ignore[misc]
    assert (b"WRONGTYPE" in refused, held, fine) == (True, refused, 1)
    assert (stored(store).last["n"], store.queue("q")) == (before, [b"3"])


def test_only_the_last_fifty_are_noted(store: Store) -> None:
    put(store, "n")
    age(store, store.keys.cron_ticks, "n", 100)
    now = store.now()
    assert tick(store, *(cron.Tick("n", now - 60 + n, "q", f"j{n}", b"1") for n in range(53))) == [1] * 53
    [past] = store.run(cron.past(store.keys, ["n"], cron.KEPT))
    assert [one.jid for one in past] == [f"j{n}" for n in range(52, 2, -1)]
    [past] = store.run(cron.past(store.keys, ["n"], 5))
    assert [one.jid for one in past] == ["j52", "j51", "j50", "j49", "j48"]


def test_nothing_ticks_by_an_old_definition(store: Store) -> None:
    put(store, "n")
    age(store, store.keys.cron_ticks, "n", 100)
    old = stored(store).revision
    for change in (
        lambda: put(store, "n", SECOND),
        lambda: store.run(cron.pause_or_resume(store.keys, "n", "pause")),
        lambda: store.run(cron.remove(store.keys, "n", fresh=0)),
    ):
        change()
        assert tick(store, cron.Tick("n", store.now() - 1, "q", "j", b"1"), revision=old) is None
        old = stored(store).revision
    assert store.queue("q") == []


def test_a_new_timing_starts_now_and_a_new_payload_changes_nothing_of_the_times(store: Store) -> None:
    assert put(store, "n") == 1
    age(store, store.keys.cron_ticks, "n", 100)
    last = stored(store).last["n"]
    assert put(store, "n") == 0
    assert put(store, "n", b'{"timing":"every 5","more":1}') == 1
    assert stored(store).last["n"] == last
    before = store.now()
    assert put(store, "n", SECOND) == 1
    assert before - 0.001 <= stored(store).last["n"] <= store.now()


def test_what_stands_in_the_code_is_not_changed_live(store: Store) -> None:
    put(store, "n")
    assert put(store, "n", SECOND, "live") == -1
    assert store.run(cron.remove(store.keys, "n")) == -1
    assert stored(store).definitions == {"n": FIRST}
    age(store, store.keys.cron_declared, "n", cron.FRESH + 1)  # no worker declares it any more
    assert put(store, "n", SECOND, "live") == 1
    assert stored(store).declared == {}
    assert store.run(cron.remove(store.keys, "n")) == 1
    assert store.run(cron.remove(store.keys, "n")) == 0
    assert store.all_keys() == {store.keys.cron_revision}


def test_pause_and_resume(store: Store) -> None:
    put(store, "n")
    assert [store.run(cron.pause_or_resume(store.keys, "n", "pause")) for _ in range(2)] == [1, 0]
    assert stored(store).paused == {"n"}
    age(store, store.keys.cron_ticks, "n", 100)
    before = store.now()
    assert [store.run(cron.pause_or_resume(store.keys, "n", "resume")) for _ in range(2)] == [1, 0]
    last = stored(store).last["n"]
    assert before - 0.001 <= last <= store.now(), "what was planned meanwhile is not missed"
    assert store.run(cron.pause_or_resume(store.keys, "no", "pause")) == -1


def test_one_leads_and_another_takes_over(store: Store) -> None:
    assert look(store) == (0, False, pytest.approx(store.now(), abs=30), None, b"0", 0, frozenset())
    assert store.all_keys() == set(), "without crons a look leaves nothing behind"
    put(store, "n")
    assert (look(store).mine, look(store, "b").mine) == (True, False)
    assert look(store, handled=5.5).seen is None
    assert look(store, "b", handled=99.0).seen == 5.5, "who does not lead says nothing"
    assert look(store, lease_ms=0).mine, "for the last time"
    assert not look(store, lease_ms=0).mine
    taken = look(store, "b")
    assert (taken.mine, taken.seen) == (True, 5.5)
    assert not look(store).mine


def test_what_nobody_declares_is_retired(store: Store) -> None:
    put(store, "n")
    put(store, "live", origin="live")
    age(store, store.keys.cron_declared, "n", cron.FRESH + 1)
    assert look(store).retired == {"n"}
    assert look(store, "b", "n").retired == frozenset(), "a process that declares it need not lead"
    assert look(store, "b", "n", "gone", "live").lost == 1


def test_a_tick_waits_for_the_job_before_it(store: Store) -> None:
    put(store, "n")
    put(store, "other")
    for name in ("n", "other"):
        age(store, store.keys.cron_ticks, name, 100)
    now = store.now()
    ticks = [cron.Tick("n", now - 9 + n, "q", f"j {n}", b"%d" % n, 60.0) for n in range(4)]
    assert tick(store, *ticks[:3], cron.Tick("other", now - 5, "q", "o", b"o", 60.0)) == [1, 2, 2, 1]
    assert tick(store, *ticks[:3]) == [0, 0, 0], "sent again"
    running, skipped = store.run(cron.overlaps(store.keys))
    assert {name: one.jid for name, one in running.items()} == {"n": "j 0", "other": "o"}
    assert now - 0.001 <= running["n"].since <= skipped["n"].at <= store.now()
    assert list(skipped) == ["n"]
    assert skipped["n"] == (pytest.approx(now - 7), skipped["n"].at, 2, "j 0")
    store.ask("HSET", store.keys.cron_running, "n", f"{now - 61:.6f} j 0")
    assert tick(store, ticks[3]) == [1], "it counts no more"
    assert tick(store, cron.Tick("n", now - 5, "q", "x", b"x")) == [1], "this one does not look"
    assert store.queue("q") == [b"0", b"o", b"3", b"x"]
    running, skipped = store.run(cron.overlaps(store.keys))
    assert (running["n"].jid, skipped["n"].ticks) == ("j 3", 2)


@pytest.mark.parametrize("text", ["", "x", "x y", "1.5", "nan j", "1 2 3"])
def test_marks_that_somebody_broke(store: Store, text: str) -> None:
    put(store, "n")
    age(store, store.keys.cron_ticks, "n", 100)
    store.ask("HSET", store.keys.cron_running, "n", text)
    store.ask("HSET", store.keys.cron_skipped, "n", text)
    store.run(cron.overlaps(store.keys))
    now = store.now()
    first, second = (cron.Tick("n", now - n, "q", "j", b"1", 60.0) for n in (9, 8))
    assert tick(store, first, second) == [1, 2]
