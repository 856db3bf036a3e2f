"""``app.keys.find`` and ``unlock``, ``henchman keys`` and ``henchman unlock``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner, Result

from henchman import App
from henchman.cli.main import henchman
from henchman.errors import ArgumentError
from henchman.store.jobs import Settlement
from henchman.work.effects import of_payload
from support.locks import KEY, OTHER, OURS, SCOPE, holder, job, left_of_keys, lock, park
from support.store import Store
from support.worker import Heard


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url)
    yield made
    made.close()


def run(store: Store, *words: str) -> Result:
    return CliRunner().invoke(henchman, [*words, "--redis", store.connections.url])


class TestFind:
    def test_who_holds_it_and_how_that_job_is(self, store: Store, app: App) -> None:
        lock(store, "u", since=1.5)
        store.push("a", job(phases="u"))
        found = app.keys.find(SCOPE, KEY)
        assert found is not None
        assert (found.phase, found.jid, found.since, found.status) == ("until_success", OURS, 1.5, "enqueued")
        assert found.remembered_until is None

    def test_by_the_job_itself(self, store: Store, app: App) -> None:
        @app.job(name="pay")
        def pay() -> None: ...

        lock(store, "o", scope="pay", key="17")
        found = app.keys.find(pay, 17)
        assert found is not None
        assert (found.phase, found.scope, found.key, found.status) == ("once", "pay", "17", "unknown")

    def test_how_a_once_job_ended(self, store: Store, app: App) -> None:
        lock(store, "o")
        store.push("a", job(phases="o"))
        store.join("a")
        store.fetch("a")
        text = of_payload(store.keys, job(phases="o"), "done")
        store.settle(Settlement(1, job(phases="o"), "done", effects=text))
        found = app.keys.find(SCOPE, KEY)
        assert found is not None
        assert (found.jid, found.status) == (OURS, "finished")
        assert found.remembered_until is not None
        assert 6 * 86_400 < found.remembered_until - store.now() < 11 * 86_400

    def test_a_free_key(self, app: App) -> None:
        assert app.keys.find(SCOPE, KEY) is None

    def test_awaited(self, store: Store, app: App) -> None:
        async def ask() -> list[str]:
            found = await app.keys.afind(SCOPE, KEY)
            assert found is not None
            freed = await app.keys.aunlock(SCOPE, KEY)
            await app.aclose()
            return [found.jid, *(one.jid for one in freed)]

        lock(store, "u")
        assert asyncio.run(ask()) == [OURS, OURS]

    @pytest.mark.parametrize("key", ["", None, True, 1.5, b"x"])
    def test_what_is_no_key_is_refused(self, app: App, key: object) -> None:
        with pytest.raises(ArgumentError, match="no key"):
            app.keys.find(SCOPE, key)  # type: ignore[arg-type]

    def test_what_is_no_job_is_refused(self, app: App) -> None:
        with pytest.raises(ArgumentError, match="neither a job"):
            app.keys.find(7, "k")  # type: ignore[arg-type]


class TestUnlock:
    def test_a_job_that_is_nowhere_loses_it(self, store: Store, app: App) -> None:
        heard = Heard(app, "key_unlocked")
        lock(store, "u")
        lock(store, "r")
        park(store, job(OTHER))
        assert [one.phase for one in app.keys.unlock(SCOPE, KEY)] == ["until_success", "running"]
        assert (holder(store, "u"), holder(store, "r")) == (None, OTHER)
        assert store.queue("a") == [job(OTHER)]
        assert [one["jid"] for one in heard["key_unlocked"]] == [OURS, OURS]

    def test_one_that_lives_keeps_it_but_for_force(self, store: Store, app: App) -> None:
        lock(store, "u")
        store.push("a", job(phases="u"))
        with pytest.raises(ArgumentError, match=f"job {OURS} has the key"):
            app.keys.unlock(SCOPE, KEY)
        assert holder(store, "u") == OURS
        assert len(app.keys.unlock(SCOPE, KEY, force=True)) == 1
        assert left_of_keys(store) == set()

    def test_of_a_dead_one_it_may_be_taken(self, store: Store, app: App) -> None:
        lock(store, "o")
        store.ask("ZADD", "dead", 1, job(phases="o"))
        assert [one.status for one in app.keys.unlock(SCOPE, KEY)] == ["dead"]


class TestCommands:
    def test_scopes_and_keys(self, store: Store) -> None:
        assert run(store, "keys").stdout == "No key was ever held.\n"
        lock(store, "u", scope="pay", key="1")
        lock(store, "u", scope="pay", key="2")
        lock(store, "w", scope="ship", key="\x1b[31m")
        told = json.loads(run(store, "keys", "--json").stdout)
        assert told["scopes"][0] == {
            "scope": "pay",
            "held": {"once": 0, "until_success": 2, "queued": 0, "running": 0, "followed": 0},
        }
        shown = run(store, "keys", "ship").stdout
        assert "\x1b" not in shown
        assert OURS in shown
        told = json.loads(run(store, "keys", "pay", "--json", "-n", "1").stdout)
        assert (len(told["keys"]), told["more"]) == (1, True)
        assert "No job holds a key of none." in run(store, "keys", "none").stdout

    def test_unlock(self, store: Store) -> None:
        lock(store, "u", scope="pay", key="1")
        store.push("a", job(phases="u", scope="pay", key="1"))
        refused = run(store, "unlock", "pay", "1")
        assert refused.exit_code == 1
        assert "its end gives the key back" in refused.stderr
        done = run(store, "unlock", "pay", "1", "--force")
        assert (done.exit_code, done.stdout) == (0, f"taken from job {OURS} (until_success), which was enqueued\n")
        assert holder(store, "u", scope="pay", key="1") is None
        again = run(store, "unlock", "pay", "1", "--force")
        assert again.exit_code == 1
        assert "Nobody holds the key '1' of pay" in again.stdout


def test_unlock_of_a_key_that_is_remembered_says_so(store: Store) -> None:
    lock(store, "o", scope="pay", key="17")
    payload = job(phases="o", scope="pay", key="17")
    store.push("a", payload)
    store.join("a")
    store.fetch("a")
    store.settle(Settlement(1, payload, "done", effects=of_payload(store.keys, payload, "done")))
    told = run(store, "unlock", "pay", "17")
    assert told.exit_code == 1
    assert f"its last job, {OURS}, is finished, which is remembered until" in told.stdout
    assert "using(again=True)" in told.stdout
    assert "Nobody holds the key '18' of pay; see henchman keys" in run(store, "unlock", "pay", "18").stdout


class TestFollowed:
    """Keys whose job others may wait for: phase ``f``, of a business key and of the id of a job."""

    def test_found_and_listed(self, store: Store, app: App) -> None:
        lock(store, "f", scope="pay", key="17")
        lock(store, "f", OTHER, scope="", key=OTHER)
        store.ask("SREM", store.keys.scopes, "")  # as the scripts leave it
        store.ask("ZADD", store.keys.awaits("npay\n17"), 1, "w1", 2, "w2")
        found = app.keys.find("pay", "17")
        assert found is not None
        assert (found.phase, found.jid, found.waiting) == ("followed", OURS, 2)
        by_id = app.keys.find("", OTHER)
        assert by_id is not None
        assert (by_id.phase, by_id.jid) == ("followed", OTHER)
        told = json.loads(run(store, "keys", "--json").stdout)["scopes"]
        assert [(one["scope"], one["held"]["followed"]) for one in told] == [("", 1), ("pay", 1)]
        assert '"" (by id)' in run(store, "keys").stdout
        assert [one["jid"] for one in json.loads(run(store, "keys", "", "--json").stdout)["keys"]] == [OTHER]
        assert "followed" in run(store, "keys", "pay").stdout

    @pytest.mark.parametrize(("ending", "status"), [("done", "finished"), ("failed", "failed"), ("gone", "over")])
    def test_how_one_that_was_followed_by_its_id_ended(self, store: Store, app: App, ending: str, status: str) -> None:
        lock(store, "f", scope="", key=OURS)
        payload = job(phases="f", scope="", key=OURS)
        store.push("a", payload)
        store.join("a")
        store.fetch("a")
        store.settle(Settlement(1, payload, "done", effects=of_payload(store.keys, payload, ending)))
        found = app.keys.find("", OURS)
        assert found is not None
        assert (found.phase, found.jid, found.status) == ("followed", OURS, status)

    def test_to_take_it_from_one_that_lives_is_refused_with_what_it_breaks(self, store: Store) -> None:
        lock(store, "f", scope="pay", key="17")
        store.push("a", job(phases="f", scope="pay", key="17"))
        store.ask("ZADD", store.keys.awaits("npay\n17"), 1, "w1")
        refused = run(store, "unlock", "pay", "17")
        assert refused.exit_code == 1
        assert "(followed) and is enqueued; 1 job waits for it" in refused.stderr
        assert "hears that it is over without success" in refused.stderr
        done = run(store, "unlock", "pay", "17", "--force")
        assert done.exit_code == 0, done.stderr
        assert "1 job that waited for it: over without success" in done.stdout
        assert holder(store, "f", scope="pay", key="17") is None
        [decision] = store.ask("LRANGE", store.keys.decide, 0, -1)
        assert decision.startswith(b"over")
        assert decision.endswith(b"\npay\n17")


class TestTheSearchForItsJob:
    def test_one_that_has_ended_loses_it(self, store: Store, app: App) -> None:
        lock(store, "u")
        store.ask("SET", store.keys.result(OURS), '{"status":"finished","value":1}')
        assert len(app.keys.unlock(SCOPE, KEY)) == 1

    def test_one_that_was_not_found_within_the_bound_may_live(
        self, store: Store, app: App, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("henchman.inspector.keys.MOST", 1)
        lock(store, "u")
        store.push("a", job(phases="u"), *(job(f"{at:024x}") for at in range(3)))
        store.ask("LREM", store.keys.queue("a"), 0, job(phases="u"))
        store.ask("LPUSH", store.keys.queue("a"), job(phases="u"))
        with pytest.raises(ArgumentError, match="it may live"):
            app.keys.unlock(SCOPE, KEY)
        assert holder(store, "u") == OURS
