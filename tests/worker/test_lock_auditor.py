"""The auditor of business keys: a key of a job that left our hands is freed, and none of a job that only waits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from henchman import App
from henchman.batch import lock_auditor
from henchman.batch.auditor import Auditor
from henchman.batch.lock_auditor import APART, LATEST, OLD, LockAuditor
from henchman.store import admission, batches, jobs, locks
from henchman.work.effects import of_payload
from henchman.worker.decide import Decisions
from support.locks import DIGEST, KEY, OTHER, OURS, SCOPE, holder, job, left_of_keys, lock, park
from support.store import ME, Store
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


def test_a_lock_from_before_the_clock_went_back_is_searched_for(store: Store, scene: Scene) -> None:
    """Nobody knows how old it is: else it kept others out until the clock is where it was."""
    lock(store, "u", since=store.now() + 86400)
    doubted(store, "u")
    assert scene.audit() == 0
    assert scene.audit(APART + 1) == 1


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


# --- keys whose end others wait for ---


def follow(store: Store, jid: str = OURS, *, queue: str = "a", hm: dict[str, Any] | None = None) -> bytes:
    """Push a once job with the key; its payload."""
    payload = job(jid, "o", queue=queue, hm=hm or {})
    ask = b'{"scope":%b,"phases":"o","conflict":"skip","once_for":604800}' % json.dumps(SCOPE).encode()
    store.run(admission.push(store.keys, queue, ask, [admission.KeyedPush(jid, "", payload, DIGEST, KEY)], (jid, 1)))
    return payload


def depend(store: Store, jid: str = OTHER, policy: str = "cancel") -> str:
    """Push a job that waits for the success of that one; the answer."""
    hm = {"needs": [[SCOPE, KEY, 604_800, "m.f"]], "on_failed": policy, "on_dead": "wait"}
    payload = json.dumps({**json.loads(job(jid)), "hm": hm}).encode()
    needs = json.dumps([[SCOPE, KEY, 604_800]]).encode()
    row = admission.KeyedPush(jid, "", payload, "", "", needs)
    ask = b'{"scope":"","phases":"","conflict":"skip"}'
    [[answer, *_]] = store.run(admission.push(store.keys, "a", ask, [row], (jid, 1)))
    return answer


def age(store: Store) -> None:
    """The key has been held for long."""
    [value] = store.ask("HVALS", store.keys.lock("o", SCOPE))
    jid, since, mark = value.decode().split(" ")
    store.ask("HSET", store.keys.lock("o", SCOPE), KEY, f"{jid} 1.5{'d' * since.endswith('d')} {mark}")


def decide(store: Store, app: App) -> None:
    while Decisions(app).carry_out(store.run(jobs.due(store.keys, ME, 60_000, 100))):
        pass


def end(store: Store, payload: bytes, ending: str) -> None:
    store.run(batches.note(store.keys, [of_payload(store.keys, payload, ending)]))


def lose(store: Store, app: App, scene: Scene) -> None:
    """Two rounds that find the job nowhere, and what is decided then."""
    age(store)
    assert scene.audit() == 0
    assert scene.audit(APART + 1) == 1
    decide(store, app)


@pytest.mark.parametrize("first", ["it", "who waits"])
def test_who_waits_for_a_lost_job_is_told_whichever_was_pushed_first(
    store: Store, app: App, scene: Scene, first: str
) -> None:
    if first == "it":
        follow(store)
    assert depend(store) == "B"
    if first == "who waits":
        follow(store)
    store.ask("DEL", "queue:a")
    lose(store, app, scene)
    assert left_of_keys(store) == set()


def test_who_waits_for_a_dead_job_that_others_delete_is_told(store: Store, app: App, scene: Scene) -> None:
    payload = follow(store)
    end(store, payload, "dead")
    store.ask("DEL", "queue:a")
    store.ask("ZADD", "dead", store.now(), payload)
    assert depend(store) == "B"
    decide(store, app)
    age(store)
    for after in (0, APART + 1, LATEST):
        assert scene.audit(after) == 0
    store.ask("DEL", "dead")  # in Sidekiq's pages
    assert scene.audit(LATEST + 1) == 0
    assert scene.audit(APART + 1) == 1
    decide(store, app)
    assert left_of_keys(store) == set()


def test_who_waits_for_a_revived_job_that_is_lost_is_told(store: Store, app: App, scene: Scene) -> None:
    payload = follow(store)
    end(store, payload, "dead")
    assert depend(store) == "B"
    store.ask("DEL", store.keys.doubt)
    end(store, payload, "revived")
    store.ask("DEL", "queue:a")
    lose(store, app, scene)
    assert left_of_keys(store) == set()


def test_who_waits_for_a_job_that_comes_later_is_not_told_that_it_is_over(store: Store, app: App, scene: Scene) -> None:
    """The key was in doubt, its job ended, and the next one was not pushed yet."""
    payload = follow(store)
    doubted(store, "o")
    end(store, payload, "cancelled")
    assert depend(store) == "B"
    scene.audit()
    scene.audit(APART + 1)
    decide(store, app)
    assert store.ask("HEXISTS", store.keys.parked, OTHER) == 1
    payload = follow(store, f"{7:024x}")
    end(store, payload, "done")
    assert left_of_keys(store) == set()


def test_a_job_that_is_dead_in_its_batch_keeps_its_key(store: Store, app: App, scene: Scene) -> None:
    batch = "b" * 32
    payload = follow(store, hm={"batch": batch})
    store.ask("DEL", "queue:a")
    end(store, payload, "kept")
    store.ask("HSET", store.keys.batch(batch), "state", "closed")
    store.ask("ZADD", store.keys.batches, 1, batch)
    store.ask("ZADD", store.keys.batch(batch) + ":dead", store.now(), payload)
    assert depend(store) == "B"
    decide(store, app)
    age(store)
    doubted(store, "o")
    for after in (0, APART + 1, LATEST + 1, APART + 1):
        assert scene.audit(after) == 0
    assert holder(store, "o") == OURS
    assert store.ask("HEXISTS", store.keys.parked, OTHER) == 1


def test_keys_that_are_long_in_doubt_do_not_hide_others(
    store: Store, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_auditor, "MOST", 2)
    for number in range(3):
        jid, key = f"{number:024x}", f"k{number}"
        lock(store, "r", jid, key=key)
        if number < 2:
            store.ask("ZADD", "schedule", 9e9, job(jid, key=key))
        park(store, job(f"{number + 10:024x}", key=key), key=key)
        store.ask("ZADD", store.keys.doubt, number + 1, f"r {SCOPE}\n{key}")
    freed = [scene.audit(APART + 1) for _ in range(4)]
    assert sum(freed) == 1
    assert holder(store, "r", key="k2") == f"{12:024x}"


def test_who_begins_to_wait_while_a_key_is_trusted_is_not_forgotten(
    store: Store, app: App, scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    follow(store)
    doubted(store, "o")
    age(store)
    real = locks.trust

    def trust(keys: Any, members: Any) -> Any:
        depend(store)
        return real(keys, members)

    monkeypatch.setattr(locks, "trust", trust)
    assert scene.audit() == 0
    monkeypatch.undo()
    store.ask("DEL", "queue:a")
    assert scene.audit(OLD) == 0
    assert scene.audit(APART + 1) == 1
    decide(store, app)
    assert left_of_keys(store) == set()
