"""``app.blocked``, ``henchman blocked``, ``release`` and ``why``: who waits for whom, and letting one go by hand."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner, Result

from henchman import App
from henchman.cli.main import henchman
from henchman.errors import ArgumentError
from henchman.inspector.blocked import blocked_slice
from henchman.inspector.doctor import Check, examine
from henchman.inspector.sets import Acted
from henchman.store.call import run as run_procedure
from henchman.wire.times import iso
from support.faces import Face
from support.garbage import NOW, fill, payload
from support.locks import DIGEST, KEY, OTHER, OURS, SCOPE, job, left_of_keys, lock, park, waiting
from support.store import Store
from support.worker import Heard

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
        assert (told.exit_code, told.stdout) == (0, f"{OTHER}: {text}\n→ henchman cancel {OURS}\n")
        assert json.loads(run(line, "why", OTHER, "--json").stdout) == {
            "jid": OTHER,
            "state": "blocked",
            "text": text,
            "command": f"henchman cancel {OURS}",
            "paused": None,
        }
        assert text in run(line, "job", OTHER).stdout

    def test_a_key_that_nobody_has(self, store: Store, app: App) -> None:
        park(store, job(OTHER))
        assert app.job_status(OTHER).text.endswith("which nobody has: an audit will let it go")

    def test_status_counts_them(self, line: Store, app: App) -> None:
        assert app.stats().blocked == 2
        assert "2 blocked" in run(line, "status").stdout
        assert json.loads(run(line, "status", "--json").stdout)["stats"]["blocked"] == 2


def need(
    store: Store,
    *needs: tuple[str, str],
    jid: str = OTHER,
    reason: str = "needs",
    due: str = "",
    age: float | None = None,
    **more: object,
) -> bytes:
    """A job that waits for ``needs``, parked as ``lib/needs.lua`` does it."""
    hm = {"needs": [[*one, 600, f"label {one[1]}"] for one in needs], **more}
    stored = payload(jid, queue="a", hm=hm, **({} if age is None else {"created_at": store.now() - age}))
    store.ask("HSET", store.keys.parked, jid, f"a\n{due}\n{reason}\n\n".encode() + stored)
    for one in needs:
        line = f"n{one[0]}\n{one[1]}"
        store.ask("ZADD", store.keys.awaits(line), store.ask("INCR", store.keys.token), jid)
        if len(needs) > 1:
            store.ask("SADD", store.keys.needs(jid), line)
    return stored


def dead(store: Store, jid: str = OURS, scope: str = "charge", key: str = "17") -> None:
    """The job that has the key is dead, since second 5."""
    store.ask("HSET", store.keys.lock("o", scope), key, f"{jid} 1.500000d {DIGEST}")
    gone = job(jid, "o", scope=scope, key=key, error_class="ValueError", error_message="no money")
    store.ask("ZADD", store.keys.dead, 5, gone)


CHARGE = ("charge", "17")


class TestNeeds:
    def state(self, app: App, jid: str = OTHER) -> list[tuple[str, str, str]]:
        found = app.blocked.find(jid)
        assert found is not None
        return [(one.name, one.state, one.jid) for one in found.waits_for]

    def test_each_state(self, store: Store, app: App) -> None:
        need(store, CHARGE, ("", OURS), ("batch:b1", "pay"))
        names = {("batch:b1", "pay"): "step 'pay' of batch b1", ("", OURS): f"job {OURS}", CHARGE: "charge/17"}
        assert self.state(app) == [(names[one], "unknown", "") for one in sorted(names)]
        lock(store, "o", scope="charge", key="17")
        lock(store, "f", THIRD, scope="", key=OURS)
        store.ask("HSET", f"{store.keys.batch('b1')}:steps", "pay", "f")
        assert self.state(app) == [
            (f"job {OURS}", "alive", THIRD),
            ("step 'pay' of batch b1", "failed", ""),
            ("charge/17", "alive", OURS),
        ]
        dead(store)
        assert self.state(app)[2] == ("charge/17", "dead", OURS)

    def test_why_behind_a_dead_one(self, store: Store, app: App) -> None:
        dead(store)
        need(store, CHARGE)
        text = app.job_status(OTHER).text
        assert text == (
            f"blocked since {iso(NOW - 9)} by charge/17, which is dead since 1970-01-01T00:00:05.000Z (job {OURS}): "
            f"ValueError: no money; retry it (henchman dead retry {OURS}), or let this one go all the same: "
            f"henchman release {OTHER}"
        )
        assert run(store, "why", OTHER).stdout == f"{OTHER}: {text}\n"
        assert app.why(OTHER) == text
        assert asyncio.run(app.awhy(OTHER)) == text
        need(store, ("ship", "1"), jid=THIRD)
        shown = run(store, "blocked").stdout.splitlines()
        assert [line.split()[0] for line in shown[2:4]] == [OTHER, THIRD], "what does not go by itself comes first"
        told = run(store, "blocked", "--stuck").stdout
        assert ("charge/17" in told, "dead" in told) == (True, True)

    def test_why_of_an_unknown_one_with_a_limit(self, store: Store, app: App) -> None:
        need(store, CHARGE)
        store.ask("ZADD", store.keys.parked_until, 5, OTHER)
        text = app.job_status(OTHER).text
        assert "by charge/17, which is unknown: never pushed, or forgotten" in text
        assert text.endswith("; it waits until 1970-01-01T00:00:05.000Z at most")

    def test_every_list_tells_until_when_each_waits_at_most(self, store: Store, app: App, face: Face) -> None:
        need(store, CHARGE)
        need(store, CHARGE, jid=THIRD)
        assert "waits until" not in run(store, "blocked").stdout
        store.ask("ZADD", store.keys.parked_until, 5, THIRD)
        assert {one.jid: one.until for one in face.walk(app.blocked)} == {OTHER: None, THIRD: 5.0}
        told = json.loads(run(store, "blocked", "--json").stdout)["blocked"]
        assert {one["jid"]: one["until"] for one in told} == {OTHER: None, THIRD: "1970-01-01T00:00:05.000Z"}
        assert "waits until" in run(store, "blocked").stdout
        found = run_procedure(store.connections, blocked_slice(store.keys, 0))
        assert {one.jid: one.until for one in found.jobs} == {OTHER: None, THIRD: 5.0}

    def test_who_waits_for_a_job(self, store: Store, app: App, face: Face) -> None:
        need(store, CHARGE)
        need(store, ("", OURS), CHARGE, jid=THIRD)
        assert [one.jid for one in face.walk(app.blocked.on("charge", 17))] == [OTHER, THIRD]
        assert [one.jid for one in face.walk(app.blocked.on("", OURS))] == [THIRD]
        assert THIRD in run(store, "blocked", "--on", "", OURS).stdout

    def test_doctor_tells_of_those_behind_a_dead_one(self, store: Store) -> None:
        need(store, CHARGE, reason=f"needs dead {store.now() - 700} charge")
        need(store, CHARGE, jid=THIRD, reason=f"needs over {store.now() - 10} charge")
        [found] = [one for one in examine(store.connections, store.keys) if one.name == "blocked jobs"]
        assert found.verdict == "warn"
        assert found.text.startswith(f"1 job: what they wait for is dead or over; {OTHER} since ")

    def test_doctor_passes_over_those_behind_one_that_lives_again(self, store: Store) -> None:
        lock(store, "o", scope="charge", key="17")
        need(store, CHARGE, reason=f"needs dead {store.now() - 700} charge", age=700)
        [found] = [one for one in examine(store.connections, store.keys) if one.name == "blocked jobs"]
        assert found.verdict == "ok"

    def test_an_id_that_nobody_knows_is_told_with_the_way_out(self, store: Store) -> None:
        """A wrong id in after= would be waited for without a word."""
        need(store, ("", OURS), age=700)
        need(store, CHARGE, jid=THIRD, age=700)  # a key: its job may be pushed later
        [found] = [one for one in examine(store.connections, store.keys) if one.name == "blocked jobs"]
        assert (found.verdict, found.text) == (
            "warn",
            f"1 job: what they wait for was never pushed, or is forgotten; {OTHER} waits for job {OURS}",
        )
        assert f"henchman release {OTHER}" in run(store, "why", OTHER).stdout
        told = run(store, "release", OTHER)
        assert told.exit_code == 0
        assert len(store.queue("a")) == 1
        [found] = [one for one in examine(store.connections, store.keys) if one.name == "blocked jobs"]
        assert found.verdict == "ok"

    def test_one_that_was_just_pushed_may_wait_for_an_id_that_is_to_come(self, store: Store, app: App) -> None:
        ship = app.job(name="ship")(lambda: None)
        ship.using(after=OURS).enqueue()
        [found] = [one for one in examine(store.connections, store.keys) if one.name == "blocked jobs"]
        assert found.verdict == "ok"

    def test_why_of_a_step_behind_one_that_lives(self, store: Store, app: App) -> None:
        charge = app.job(name="charge")(lambda: None)
        with app.workflow() as flow:
            first = flow.add(charge.call())
            second = flow.add(charge.call(), after=first)
        assert (
            run(store, "why", second.jid)
            .stdout.splitlines()[0]
            .endswith(f"by step 'charge' of batch {flow.id}, which has not ended (job {first.jid})")
        )


class TestActs:
    def test_release(self, store: Store, app: App, face: Face) -> None:
        heard = Heard(app, "job_let_go")
        dead(store)
        need(store, CHARGE, ("", OURS), met={"x": "time"})
        store.ask("ZADD", store.keys.parked_until, 5, OTHER)
        assert face.do(app.blocked, "release", OTHER) == Acted(1)
        [stored] = store.queue("a")
        told = json.loads(stored)
        assert told["hm"]["met"] == {"x": "time", "label 17": "dead", f"label {OURS}": "released"}
        assert told["enqueued_at"] > 0
        assert left_of_keys(store) == {store.keys.lock("o", "charge")}
        assert face.do(app.blocked, "release", [OTHER]) == Acted(gone=1)
        assert [one["jid"] for one in heard["job_let_go"]] == [OTHER]

    def test_release_before_its_time(self, store: Store, app: App) -> None:
        need(store, CHARGE, due=str(store.now() + 60))
        assert app.blocked.release(OTHER).done == 1
        assert (store.queue("a"), store.ask("ZCARD", store.keys.schedule)) == ([], 1)

    def test_who_waits_for_a_key_stays(self, line: Store, app: App) -> None:
        acted = app.blocked.release([OTHER])
        assert (acted.done, acted.stayed) == (0, 1)
        assert f"job {OURS} has its key" in acted.reasons[0]
        told = run(line, "release", OTHER)
        assert (told.exit_code, "henchman unlock 'shop: ü'" in told.stderr) == (1, True)
        assert waiting(line) == [OTHER, THIRD]

    @pytest.mark.parametrize("verb", ["cancel", "delete"])
    def test_ends(self, line: Store, app: App, face: Face, verb: str) -> None:
        need(line, CHARGE, jid="5" * 24, key=["", "5" * 24, "f"])
        lock(line, "f", "5" * 24, scope="", key="5" * 24)
        assert face.do(app.blocked, verb, [OTHER, "5" * 24, "6" * 24]) == Acted(2, 1)
        assert waiting(line) == [THIRD]
        assert app.blocked.find(OTHER) is None
        assert not line.ask("EXISTS", line.keys.awaits("ncharge\n17"), line.keys.lock("f", ""))

    def test_garbage_can_be_deleted_and_is_never_released(self, store: Store, app: App) -> None:
        fill(store, store.now())
        every = list(app.blocked)
        bad = [one for one in every if one.why_it_stays]
        acted = app.blocked.release(bad)
        assert (acted.done, acted.stayed) == (0, len(bad))
        assert app.blocked.delete(every).done == len(every)
        assert app.blocked.size() == 0
        assert store.ask("LLEN", store.keys.broken) == 0

    def test_command(self, store: Store) -> None:
        dead(store)
        need(store, CHARGE)
        dry = run(store, "release", OTHER[:8], "--dry-run")
        assert (dry.exit_code, dry.stdout.startswith(f"{OTHER} would go into queue a; nothing was done. It is")) == (
            0,
            True,
        )
        assert store.queue("a") == []
        done = run(store, "release", OTHER)
        assert (done.exit_code, done.stdout.startswith(f"{OTHER} goes into queue a. It was blocked since")) == (0, True)
        assert len(store.queue("a")) == 1
        again = run(store, "release", OTHER)
        assert (again.exit_code, again.stderr) == (1, f"Error: {OTHER} is not blocked; see: henchman why {OTHER}\n")


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

    def test_some_behind_one_that_has_just_died(self, store: Store) -> None:
        needing = job(OTHER, created_at=store.now(), hm={"needs": [["pay", "17", 0, "pay"]]})
        row = f"a\n\nneeds dead {store.now() - 60:.3f} pay\n\n".encode() + needing
        store.ask("HSET", store.keys.parked, OTHER, row)
        text = "1 job; 1 for less than ten minutes behind one that is dead or over: henchman blocked --stuck"
        assert self.said(store)[1:] == ("ok", text, "")

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
