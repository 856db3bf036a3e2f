"""The auditor of business keys: a key of a job that left our hands is freed, and none of a job that only waits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from henchman import App
from henchman.batch.auditor import Auditor
from henchman.batch.lock_auditor import APART, LATEST, OLD, LockAuditor
from support.locks import KEY, OTHER, OURS, SCOPE, holder, job, left_of_keys, lock, park
from support.store import Store
from support.worker import Heard


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url)
    yield made
    made.close()


class Scene:
    def __init__(self, app: App) -> None:
        self.now = 1000.0
        self.auditor = LockAuditor(app, monotonic=lambda: self.now)

    def audit(self, after: float = 0.0) -> int:
        self.now += after
        return self.auditor.audit()


@pytest.fixture
def scene(app: App) -> Scene:
    return Scene(app)


def doubted(store: Store, phase: str) -> None:
    store.ask("ZADD", store.keys.doubt, store.now(), f"{phase} {SCOPE}\n{KEY}")


@pytest.mark.parametrize("phase", ["o", "u", "w", "r"])
def test_what_is_nowhere_is_freed_after_two_looks(store: Store, app: App, scene: Scene, phase: str) -> None:
    """Cause 1 and 2: UNLINK, a Ruby worker, Sidekiq's pages."""
    heard = Heard(app, "key_freed")
    lock(store, phase)
    doubted(store, phase)
    assert scene.audit() == 0, "the first look frees nothing"
    assert scene.audit(APART - 1) == 0
    assert holder(store, phase) == OURS
    assert scene.audit(2) == 1
    assert heard["key_freed"][0]["jid"] == OURS
    assert scene.audit() == 0
    assert left_of_keys(store) == set()


@pytest.mark.parametrize("where", ["queue", "schedule", "retry", "flight", "parked"])
def test_what_waits_or_runs_keeps_its_key(store: Store, app: App, scene: Scene, where: str) -> None:
    """Cause 3: no age frees the key of a living job."""
    lock(store, "w")
    doubted(store, "w")
    if where in ("queue", "flight"):
        store.push("a", job(phases="w"))
    if where == "flight":
        store.join("a")
        store.fetch("a")
    if where in ("schedule", "retry"):
        store.ask("ZADD", where, 9e9, job(phases="w"))
    if where == "parked":
        lock(store, "r", OTHER, since=store.now())
        park(store, job(phases="wr"))
    for after in (0, APART + 1, OLD, LATEST):
        assert scene.audit(after) == 0
    assert holder(store, "w") == OURS


def test_a_young_lock_is_not_searched_for(store: Store, scene: Scene) -> None:
    lock(store, "u", since=store.now())
    doubted(store, "u")
    for after in (0, APART + 1, OLD):
        assert scene.audit(after) == 0
    assert holder(store, "u") == OURS


@pytest.mark.parametrize(("phase", "freed"), [("u", 1), ("w", 1), ("r", 1), ("o", 0)])
def test_what_others_put_with_the_dead_has_died(store: Store, scene: Scene, phase: str, freed: int) -> None:
    lock(store, phase)
    doubted(store, phase)
    store.ask("ZADD", "dead", 1, job(phases=phase))
    assert scene.audit() == freed
    assert (holder(store, phase) is None) == bool(freed)
    scene.audit(APART + 1)
    assert not store.ask("EXISTS", store.keys.doubt)


def test_a_job_that_came_back_between_two_looks_keeps_it(store: Store, scene: Scene) -> None:
    lock(store, "u")
    doubted(store, "u")
    assert scene.audit() == 0
    store.push("a", job(phases="u"))
    assert scene.audit(APART + 1) == 0
    assert holder(store, "u") == OURS


def test_another_holder_between_two_looks_is_looked_at_anew(store: Store, scene: Scene) -> None:
    lock(store, "u")
    doubted(store, "u")
    assert scene.audit() == 0
    lock(store, "u", OTHER)
    assert scene.audit(APART + 1) == 0
    assert holder(store, "u") == OTHER
    assert scene.audit(APART + 1) == 1


def test_who_waits_for_a_lost_job_runs(store: Store, scene: Scene) -> None:
    lock(store, "r")
    park(store, job(OTHER))
    scene.audit()
    assert scene.audit(APART + 1) == 1
    assert holder(store, "r") == OTHER
    assert store.queue("a") == [job(OTHER)]


def test_a_line_that_nobody_heads_goes_on(store: Store, scene: Scene) -> None:
    """Somebody removed the lock by hand."""
    park(store, job(OTHER))
    scene.audit()
    assert holder(store, "r") == OTHER
    scene.audit()
    assert left_of_keys(store) == {store.keys.lock("r", SCOPE)}


def test_a_searched_key_is_searched_again_ever_later(store: Store, app: App, scene: Scene) -> None:
    lock(store, "r")
    store.ask("ZADD", "schedule", 9e9, job())
    park(store, job(OTHER))
    names: list[str] = []
    real = app.connections.run
    app.connections.run = lambda call: (names.append(call.name), real(call))[1]  # type: ignore[method-assign]
    for after in (0, 60, OLD, 60, OLD):
        scene.audit(after)
    assert names.count("zset_page") == 2 * 2, "two looks, at two sets"


def test_a_round_of_the_auditor_looks_into_keys_too(store: Store, app: App) -> None:
    now = [1000.0]
    auditor = Auditor(app, monotonic=lambda: now[0])
    lock(store, "u")
    doubted(store, "u")
    assert auditor.audit().unlocked == 0
    now[0] += APART + 1
    assert auditor.audit().unlocked == 1
