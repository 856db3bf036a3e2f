"""The election for a duty: one process has it, keeps it, gives it up, loses it."""

from __future__ import annotations

from henchman.kernel.events import Events
from henchman.store.leases import AUDITOR_MS, CRON_MS, LIFELINE_MS, RECORDER_MS, STAGING_MS, Leader
from support.store import Store

DUTY = "hm:auditor"


def test_one_process_has_a_duty_and_another_takes_it_over_when_it_is_given_up(store: Store) -> None:
    first, second = Leader(DUTY, 60_000), Leader(DUTY, 60_000)
    runner = store.connections
    assert (first.contend(runner), first.leads) == (True, True), "anew"
    assert (first.contend(runner), first.leads) == (False, True), "it goes on"
    assert (second.contend(runner), second.leads) == (False, False)
    assert store.ask("GET", DUTY) == first.identity.encode()
    assert 0 < store.ask("PTTL", DUTY) <= 60_000
    second.resign(runner, Events(), "test")
    assert store.ask("GET", DUTY) == first.identity.encode(), "a duty of another is not given up"
    first.resign(runner, Events(), "test")
    assert not first.leads
    assert (second.contend(runner), second.leads) == (True, True)


def test_who_lost_its_duty_and_has_it_again_has_it_anew(store: Store) -> None:
    """Another process may have had it in between: what its leader knows may be old."""
    leader = Leader(DUTY, 60_000)
    leader.contend(store.connections)
    store.ask("DEL", DUTY)
    assert leader.contend(store.connections)
    store.ask("SET", DUTY, "another", "PX", 60_000)
    assert (leader.contend(store.connections), leader.leads) == (False, False)


def test_a_lease_from_before_the_clock_went_back_ends_in_time(store: Store) -> None:
    store.ask("SET", DUTY, "another", "PX", 3_600_000)
    leader = Leader(DUTY, 1000)
    assert not leader.contend(store.connections)
    assert 0 < store.ask("PTTL", DUTY) <= 1000


def test_what_is_announced_holds_whoever_leads(store: Store) -> None:
    store.ask("SET", DUTY, "another", "PX", 1000)
    Leader(DUTY, 1000).contend(store.connections, "hm:history:on", "strict 1000")
    assert store.ask("GET", "hm:history:on") == b"strict 1000"


def test_a_full_server_elects_too(store: Store) -> None:
    store.ask("CONFIG", "SET", "maxmemory", 1)
    try:
        leader = Leader(DUTY, 1000)
        assert leader.contend(store.connections, "hm:history:on", "strict 1000")
        assert leader.contend(store.connections) is False
        assert leader.leads
    finally:
        store.ask("CONFIG", "SET", "maxmemory", 0)


def test_each_duty_has_a_lease_of_its_own_length() -> None:
    assert (STAGING_MS, LIFELINE_MS, CRON_MS, AUDITOR_MS, RECORDER_MS) == (2000, 3000, 2000, 120_000, 10_000)
