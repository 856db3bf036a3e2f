"""Business keys that nobody asks for, and whose jobs are nowhere: the daily walk, and the look by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from henchman import App
from henchman.batch import lock_patrol
from henchman.batch.lock_auditor import APART, LockAuditor
from henchman.batch.lock_patrol import DAY, EVERY, LockPatrol, forget, lost_keys
from support.locks import OTHER, OURS, SCOPE, holder, job, left_of_keys, lock, park
from support.store import Store


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url)
    yield made
    made.close()


class Days:
    """A patrol and the auditor behind it, on one clock."""

    def __init__(self, app: App) -> None:
        self.now = 1000.0
        self.patrol = LockPatrol(app, monotonic=lambda: self.now)
        self.auditor = LockAuditor(app, monotonic=lambda: self.now)

    def walk(self, after: float = 0.0) -> int:
        self.now += after
        return self.patrol.walk()

    def audit(self, after: float = 0.0) -> int:
        self.now += after
        return self.auditor.audit()


@pytest.fixture
def days(app: App) -> Days:
    return Days(app)


@pytest.mark.parametrize("phase", ["o", "u", "w", "r"])
def test_what_is_nowhere_is_freed_though_nobody_asks_for_it(store: Store, days: Days, phase: str) -> None:
    lock(store, phase)
    assert days.walk() == 0, "a process that has just begun looks at nothing"
    assert days.walk(EVERY) == 1
    assert holder(store, phase) == OURS, "one search frees nothing"
    assert days.audit() == 0
    assert days.audit(APART + 1) == 1
    assert days.audit() == 0
    assert left_of_keys(store) == set()


@pytest.mark.parametrize("where", ["queue", "schedule", "retry", "flight", "parked", "dead"])
def test_what_is_anywhere_keeps_its_key(store: Store, app: App, days: Days, where: str) -> None:
    lock(store, "u")
    if where in ("queue", "flight"):
        store.push("a", job(phases="u"))
    if where == "flight":
        store.join("a")
        store.fetch("a")
    if where in ("schedule", "retry", "dead"):
        store.ask("ZADD", where, 9e9, job(phases="u"))
    if where == "parked":
        lock(store, "r", OTHER, since=store.now())
        park(store, job(phases="ur"))
    before = store.ask("EXISTS", store.keys.doubt)
    assert days.walk(EVERY) == 0
    assert lost_keys(app).found == []
    assert store.ask("EXISTS", store.keys.doubt) == before
    assert holder(store, "u") == OURS


def test_it_walks_once_a_day_over_what_has_stood_for_a_day(store: Store, app: App, days: Days) -> None:
    lock(store, "u", since=store.now() - DAY + 60)
    assert days.walk(EVERY) == 0
    lock(store, "u")
    assert days.walk(DAY - 1) == 0
    assert days.walk(1) == 1


def test_a_large_walk_goes_on_from_search_to_search(store: Store, days: Days, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_patrol, "READ", 300)
    monkeypatch.setattr(lock_patrol, "MOST", 100)
    for number in range(1000):
        lock(store, "u", f"{number:024x}", key=f"k{number}")
    found = [days.walk(EVERY) for _ in range(4)]
    assert found == [300, 300, 300, 100], "each once"
    assert days.walk(EVERY) == 0
    store.ask("DEL", store.keys.doubt)
    assert days.walk(DAY) == 300, "tomorrow from the beginning: nobody has freed them"


def test_a_look_by_hand_and_a_second_one_free_at_once(store: Store, app: App) -> None:
    lock(store, "o")
    lock(store, "u", OTHER, key="young", since=store.now())
    lost = lost_keys(app)
    assert [(one.scope, one.jid) for one in lost.found] == [(SCOPE, OURS)]
    assert (lost.looked, lost.more) == (1, False)
    store.push("a", job(phases="o"))
    assert forget(app, lost.found) == [], "it came back meanwhile"
    assert holder(store, "o") == OURS
    store.ask("DEL", store.keys.queue("a"))
    assert forget(app, lost.found) == lost.found
    assert holder(store, "o") is None
    assert holder(store, "u", key="young") == OTHER


def test_another_jobs_lock_is_left_alone(store: Store, app: App) -> None:
    """It was freed and taken between the search and the act."""
    lock(store, "u")
    lost = lost_keys(app)
    lock(store, "u", OTHER)
    forget(app, lost.found)
    assert holder(store, "u") == OTHER
