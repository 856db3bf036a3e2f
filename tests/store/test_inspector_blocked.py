"""``app.blocked``, ``henchman blocked``, ``release`` and ``why``: who waits for whom, and letting one go by hand."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner, Result

from henchman import App
from henchman.cli.main import henchman
from henchman.errors import ArgumentError
from henchman.inspector.doctor import Check, examine
from support.faces import Face
from support.garbage import fill
from support.locks import KEY, OTHER, OURS, SCOPE, job, lock, park
from support.store import Store

THIRD = "3" * 24


def run(store: Store, *words: str) -> Result:
    return CliRunner().invoke(henchman, [*words, "--redis", store.connections.url])


@pytest.fixture
def line(store: Store) -> Store:
    """OTHER and THIRD wait for the running lock of OURS."""
    lock(store, "r")
    park(store, job(OTHER))
    park(store, job(THIRD))
    return store


class TestLocks:
    def test_who_waits_for_a_key(self, line: Store, app: App, face: Face) -> None:
        found = {one.jid: one for one in face.walk(app.blocked)}
        assert set(found) == {OTHER, THIRD}
        assert face.do(app.blocked, "size") == 2
        [blocker] = found[OTHER].waits_for
        assert (blocker.scope, blocker.key, blocker.lock, blocker.state, blocker.jid) == (
            SCOPE,
            KEY,
            "running",
            "alive",
            OURS,
        )
        assert (blocker.since, blocker.waiting, blocker.is_stuck) == (1.5, 2, False)
        assert (found[OTHER].queue, found[OTHER].entry.name) == ("a", "m.f")

    def test_in_their_order_on_one_key(self, line: Store, app: App, face: Face) -> None:
        lock(line, "u")
        park(line, job("4" * 24, phases="u"), "u")
        found = face.walk(app.blocked.on(SCOPE, KEY))
        assert [one.jid for one in found] == ["4" * 24, OTHER, THIRD]
        assert [one.waits_for[0].lock for one in found] == ["until_success", "running", "running"]
        assert face.walk(app.blocked.on(SCOPE, "another")) == []

    def test_a_long_line_page_by_page(self, store: Store, app: App, face: Face) -> None:
        lock(store, "r")
        jids = [f"{number:024}" for number in range(250)]
        for jid in jids:
            park(store, job(jid))
        assert [one.jid for one in face.walk(app.blocked.on(SCOPE, KEY))] == jids
        assert {one.jid for one in face.walk(app.blocked)} == set(jids)

    def test_find_and_what_is_no_key(self, line: Store, app: App, face: Face) -> None:
        assert face.do(app.blocked, "find", OTHER).jid == OTHER
        assert face.do(app.blocked, "find", OURS) is None
        assert face.do(app.blocked, "find", "") is None
        with pytest.raises(ArgumentError, match="id of a job"):
            face.do(app.blocked, "find", 7)
        with pytest.raises(ArgumentError, match="no key"):
            app.blocked.on(SCOPE, "")

    def test_why(self, line: Store, app: App) -> None:
        text = app.job_status(OTHER).text
        assert (
            text == f"blocked by job {OURS}, which has the key 'order\\\\n17 }}' of 'shop: ü' and runs, 2 are in line"
        )
        told = run(line, "why", OTHER[:6])
        assert (told.exit_code, told.stdout) == (0, f"{OTHER}: {text}\n")
        assert json.loads(run(line, "why", OTHER, "--json").stdout) == {"jid": OTHER, "state": "blocked", "text": text}
        assert text in run(line, "job", OTHER).stdout

    def test_a_key_that_nobody_has(self, store: Store, app: App) -> None:
        park(store, job(OTHER))
        assert app.job_status(OTHER).text.endswith("which nobody has: an audit will let it go")

    def test_status_counts_them(self, line: Store, app: App) -> None:
        assert app.stats().blocked == 2
        assert "2 blocked" in run(line, "status").stdout
        assert json.loads(run(line, "status", "--json").stdout)["stats"]["blocked"] == 2


def test_garbage_is_listed_and_found(store: Store, app: App, face: Face) -> None:
    fill(store, store.now())
    found = face.walk(app.blocked)
    assert len(found) == face.do(app.blocked, "size") > 100
    assert all(isinstance(json.dumps(one.to_json()), str) and one.sentence() for one in found)
    for one in found:
        assert face.do(app.blocked, "find", one.jid) == (one if one.jid else None)


class TestDoctor:
    def said(self, store: Store) -> Check:
        return next(one for one in examine(store.connections, store.keys) if one.name == "blocked jobs")

    def test_none_and_some_that_only_wait(self, store: Store) -> None:
        assert self.said(store)[1:] == ("ok", "none", "")
        park(store, job(OTHER, created_at=store.now()))
        assert self.said(store)[1:] == ("ok", "1 job, none behind one that is dead or over", "")

    def test_those_that_wait_for_very_long(self, store: Store) -> None:
        park(store, job(OTHER, created_at=store.now() - 8 * 86_400))
        park(store, job(THIRD, created_at=store.now()))
        found = self.said(store)
        assert (found.verdict, found.text) == ("warn", f"1 job: pushed more than a week ago, such as {OTHER}")
        assert "henchman why JID" in found.advice

    def test_a_key_of_another_kind(self, store: Store) -> None:
        store.ask("SET", store.keys.parked, "x")
        assert self.said(store).verdict == "bad"


class TestCommand:
    def test_nothing(self, store: Store) -> None:
        told = run(store, "blocked")
        assert (told.exit_code, told.stdout) == (0, "No blocked jobs. A job that waits for another one is kept here.\n")
        assert json.loads(run(store, "blocked", "--json").stdout) == {"total": 0, "blocked": [], "more": False}

    def test_a_line_for_each(self, line: Store) -> None:
        told = run(line, "blocked").stdout
        assert [part in told for part in (OTHER, THIRD, "shop: ü/order\\n17 }", "running", "m.f()")] == [True] * 5
        one = run(line, "blocked", "--on", SCOPE, KEY, "-n", "1").stdout.splitlines()
        assert (one[2].split()[0], one[-1]) == (OTHER, "There are more: --most")
        assert run(line, "blocked", "-n", "1").stdout.splitlines()[-1] == "1 of 2 blocked jobs; more with --most"
        assert run(line, "blocked", "--on", SCOPE, "none").stdout.startswith("No blocked jobs of this kind.")
        assert run(line, "blocked", "--stuck").stdout.startswith("No blocked jobs of this kind.")

    def test_as_json(self, line: Store) -> None:
        told = json.loads(run(line, "blocked", "--json", "--on", SCOPE, KEY).stdout)
        assert (told["total"], told["more"], [one["jid"] for one in told["blocked"]]) == (2, False, [OTHER, THIRD])
        assert told["blocked"][0]["waits_for"] == [
            {
                "scope": SCOPE,
                "key": KEY,
                "lock": "running",
                "state": "alive",
                "jid": OURS,
                "since": "1970-01-01T00:00:01.500Z",
            }
        ]

    @pytest.mark.parametrize("words", [["--on", "x"], ["--on", "x", ""], ["--most", "0"], ["x"]])
    def test_wrong_words(self, store: Store, words: list[str]) -> None:
        told = run(store, "blocked", *words)
        assert told.exit_code in (1, 2)
        assert told.stderr
