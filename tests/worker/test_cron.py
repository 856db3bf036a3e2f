"""Periodic jobs in a worker: what is declared, added, changed, missed, stopped. In-process, on a real server."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis

from henchman import App, ArgumentError, DefinitionError, Discard, Failure, Kill, current_job
from henchman.cron import ticker as cron_ticker
from henchman.cron import timing
from henchman.cron.ticker import CronTicker
from henchman.errors import UnknownCron
from support.history import stream
from support.worker import Heard, in_flight, jobs_in, push_raw, settled, until, working

YEARLY = "0 0 1 1 *"


@pytest.fixture
def app(redis_url: str) -> Iterator[App]:
    made = App(redis_url=redis_url)
    yield made
    made.close()


def trouble(app: App) -> Heard:
    return Heard(app, "part_failed", "error", "cron_missed", "cron_stopped", "cron_unreadable")


def ticker(app: App) -> CronTicker:
    """A worker's ticker that is turned by hand."""
    made = CronTicker(app)
    made.tick()
    return made


def state(app: App, name: str) -> Any:
    return next(one for one in app.crons.list() if one.name == name)


def missed_since(redis: Redis, name: str, seconds: float) -> None:
    """As if no worker had run for so long."""
    redis.zadd("hm:cron:ticks", {name: time.time() - seconds})
    redis.delete("hm:cron:seen")


def job(app: App, name: str = "job") -> Callable[..., Any]:
    @app.job(name=name)
    def function(*args: Any, **kwargs: Any) -> None: ...

    return function


class TestDefining:
    def test_below_app_job_is_refused(self, app: App) -> None:
        with pytest.raises(DefinitionError, match=r"put it above @app.job, not below \(.*report\)"):

            @app.job(name="x")
            @app.cron("* * * * *")  # type: ignore[type-var]
            def report() -> None: ...

    def test_in_the_options_of_a_job_is_refused(self, app: App) -> None:
        with pytest.raises(DefinitionError, match=r"write @app.cron\('\* \* \* \* \*'\) above @app.job"):
            app.job(name="x", cron="* * * * *")(lambda: None)

    def test_a_second_cron_needs_a_name(self, app: App) -> None:
        one = app.cron("* * * * *")(job(app))
        with pytest.raises(DefinitionError, match=r"two crons are called 'job'.*give one name="):
            app.cron(every=5)(one)
        app.cron(every=5, name="often")(one)
        assert sorted(app.crons.declared) == ["job", "often"]
        with pytest.raises(DefinitionError, match="two crons are called 'often', of job and other"):
            app.cron(every=5, name="often")(job(app, "other"))

    def test_a_module_that_is_loaded_again_declares_again(self, app: App) -> None:
        for every in (5, 7):
            app.cron(every=every)(job(app))
        assert app.crons.declared["job"].timing == "every 7.0"

    @pytest.mark.parametrize(
        ("options", "said"),
        [
            ({"missed": "some"}, "missed='some': give 'latest', 'all' or 'skip'"),
            ({"overlap": "never"}, "overlap='never': give 'allow' or 'skip'"),
            ({"overlap_for": 5}, "overlap_for=5 belongs to overlap='skip'"),
            ({"overlap": "skip", "overlap_for": 0}, "overlap_for=0: give seconds"),
            ({"name": ""}, "name=''"),
            ({"name": "a\nb"}, r"name='a\\nb'"),
            ({"tz": "Paris"}, "tz='Paris'"),
        ],
    )
    def test_wrong_options(self, app: App, options: dict[str, Any], said: str) -> None:
        with pytest.raises(DefinitionError, match=said):
            app.cron("* * * * *", **options)(job(app))

    def test_arguments_are_checked_where_they_are_written(self, app: App) -> None:
        @app.job(name="strict")
        def strict(day: datetime) -> None: ...

        with pytest.raises(ArgumentError, match="strict"):
            app.cron("* * * * *", args=(1, 2))(strict)
        with pytest.raises(ArgumentError, match="give a list or tuple"):
            app.cron("* * * * *", args="ab")(strict)
        app.cron("* * * * *", kwargs={"day": datetime(2026, 1, 1, tzinfo=UTC)})(strict)
        with pytest.raises(DefinitionError, match="leave out at= and delay="):
            app.crons.add("x", strict.using(delay=5), YEARLY, args=[datetime.now(UTC)])
        with pytest.raises(DefinitionError, match="None is no job"):
            app.crons.add("x", None, YEARLY)


class TestTicking:
    @pytest.mark.alone("it measures how late a tick is")
    def test_each_tick_is_a_job_of_its_own_on_time(self, app: App, redis: Redis) -> None:
        runs: list[tuple[dict[str, Any], float, float]] = []
        heard = trouble(app)

        @app.cron(every=timedelta(seconds=0.25), args=(2.5,), name="quarter")
        @app.cron("* * * * * *", tz="Europe/Paris", kwargs={"number": 7})
        @app.job(name="note", queue="clock", timeout=9)
        def note(number: float) -> None:
            runs.append((current_job().payload["hm"], number, time.time()))

        with working(app):
            until(lambda: len(runs) >= 12, "jobs run")
        assert heard["part_failed"] == heard["error"] == []
        for name, number, apart in (("quarter", 2.5, 0.25), ("note", 7, 1.0)):
            mine = [(hm["planned"], at) for hm, given, at in runs if (hm["cron"], given) == (name, number)]
            planned = [one for one, _ in mine]
            assert planned == [planned[0] + apart * n for n in range(len(planned))]
            assert planned[0] % apart == 0
            assert min(at - due for due, at in mine) >= 0
            late = sorted(at - due for due, at in mine)  # 2 ms when nothing else runs; a neighbour may hold us up
            assert late[len(late) // 2] < 0.1
            assert late[-1] < 2

    def test_no_cron_costs_a_look_a_minute(self, app: App) -> None:
        passed = [0.0]
        idle = CronTicker(app, monotonic=lambda: passed[0])
        waits = []
        for _ in range(7):
            waits.append(idle.tick())
            passed[0] += waits[-1]
        assert waits == [5, 10, 20, 40, 60, 60, 60]
        assert not idle.leads

    def test_with_crons_one_command_a_second(self, app: App, redis: Redis) -> None:
        app.cron(YEARLY)(job(app))
        one = CronTicker(app, monotonic=lambda: 1000.0)  # a look takes no time, as far as this one knows
        one.tick()
        redis.config_resetstat()
        for _ in range(3):
            one._look_at = 0.0  # its second has passed
            assert one.tick() == cron_ticker.LOOK == 1.0
        assert redis.info("commandstats")["cmdstat_evalsha"]["calls"] == 3  # type: ignore[index]

    def test_one_process_ticks_and_another_goes_on_at_once_when_it_stops(
        self, app: App, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cron_ticker, "CRON_MS", 60_000)  # it does not run out between two lines of a test
        app.cron(YEARLY)(job(app))
        one, two = ticker(app), ticker(app)
        assert (one.leads, two.leads) == (True, False)
        one.quiet()
        one.tick()
        assert not one.leads
        two._look_at = 0.0  # its second has passed
        two.tick()
        assert two.leads

    @pytest.mark.parametrize(("missed", "made_up"), [("latest", 1), ("all", 60), ("skip", 0)])
    def test_missed_while_no_worker_ran(self, app: App, redis: Redis, missed: str, made_up: int) -> None:
        heard = trouble(app)
        newest = int(time.time()) - 30  # older than what is only late, and no other will be due in this test
        app.cron(f"{newest % 60} * * * * *", missed=missed)(job(app))
        ticker(app).stop()
        missed_since(redis, "job", 3600)
        two = ticker(app)
        found = jobs_in(redis, "queue:default")
        assert len(found) == made_up
        assert [one["hm"]["planned"] for one in found] == sorted(newest - 60 * n for n in range(made_up))
        assert len(heard["cron_missed"]) == (missed != "all")
        two._look_at = 0.0
        two.tick()
        assert len(jobs_in(redis, "queue:default")) == made_up, "once"

    def test_all_makes_up_for_1000_at_most_and_says_so(self, app: App, redis: Redis) -> None:
        heard, began = trouble(app), time.monotonic()
        app.cron(every=1, missed="all")(job(app))
        ticker(app).stop()
        missed_since(redis, "job", 5000)
        ticker(app)
        meanwhile = time.monotonic() - began  # what came due in these seconds was not missed
        assert 1000 <= redis.llen("queue:default") <= 1003 + meanwhile  # type: ignore[operator]
        assert [facts["enqueued"] for facts in heard["cron_missed"]] == [1000]

    def test_the_middleware_sees_each_job_and_may_stop_it(
        self, app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cron_ticker, "HELD_UP", 600.0)
        newest = int(time.time()) - 30  # no other will be due in this test
        heard = trouble(app)
        seen: list[str] = []

        @app.client_middleware.add
        def link(payload: dict[str, Any], call_next: Callable[[], Any]) -> Any:
            seen.append(payload["hm"]["cron"])
            if payload["class"] == "broken":
                raise ValueError("no")
            return call_next() if payload["class"] == "passes" else None

        for name in ("broken", "stopped", "passes"):
            app.cron(f"{newest % 60} * * * * *")(job(app, name))
        ticker(app).stop()
        for name in ("broken", "stopped", "passes"):
            missed_since(redis, name, 60)
        one = ticker(app)
        assert [found["class"] for found in jobs_in(redis, "queue:default")] == ["passes"]
        assert sorted(seen) == ["broken", "passes", "stopped"]
        assert [facts["cron"] for facts in heard["cron_stopped"]] == ["stopped"]
        assert [str(facts["error"]) for facts in heard["part_failed"]] == ["no"]
        one.tick()
        assert len(seen) == 3, "what was stopped is passed over, what failed is tried again later"

    def test_a_middleware_that_raises_is_asked_again_and_each_edge_is_said_once(
        self, app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cron_ticker, "HELD_UP", 0.05)
        heard = Heard(app, "part_failed", "cron_back")
        asked: list[str] = []

        @app.client_middleware.add
        def link(payload: dict[str, Any], call_next: Callable[[], Any]) -> Any:
            asked.append(payload["jid"])
            if len(asked) <= 3:
                raise ConnectionError("away")
            return call_next()

        app.cron(YEARLY)(job(app, "once"))
        ticker(app).stop()
        missed_since(redis, "once", 2 * 366 * 86400)
        one = ticker(app)
        until(lambda: (one.tick(), redis.llen("queue:default"))[1], "it is enqueued in the end")
        assert redis.llen("queue:default") == 1
        assert [str(facts["error"]) for facts in heard["part_failed"]] == ["away"]
        assert [facts["cron"] for facts in heard["cron_back"]] == ["once"]

    @pytest.mark.parametrize("raised", [SystemExit, asyncio.CancelledError])
    def test_a_middleware_that_ends_its_program_stops_no_other(
        self, app: App, redis: Redis, raised: type[BaseException]
    ) -> None:
        heard = trouble(app)

        @app.client_middleware.add
        def link(payload: dict[str, Any], call_next: Callable[[], Any]) -> Any:
            if payload["class"] == "broken":
                raise raised
            return call_next()

        for name in ("broken", "passes"):
            app.cron(YEARLY)(job(app, name))
        ticker(app).stop()
        for name in ("broken", "passes"):
            missed_since(redis, name, 2 * 366 * 86400)
        ticker(app)
        assert [found["class"] for found in jobs_in(redis, "queue:default")] == ["passes"]
        assert [type(facts["error"]) for facts in heard["part_failed"]] == [raised]

    def test_a_queue_that_refuses_stops_no_other_and_is_made_up_for(
        self, app: App, redis: Redis, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(timing, "GRACE", 600.0)  # however long this takes: a tick that could not be sent is late
        heard = trouble(app)
        redis.set("queue:default", "no list")
        app.cron(every=0.2)(job(app))

        @app.cron(every=0.2)
        @app.job(name="fine", queue="other")
        def fine() -> None: ...

        one = CronTicker(app)
        one.start()
        until(lambda: redis.llen("queue:other") >= 3, "the other goes on")  # type: ignore[operator]
        until(lambda: heard["part_failed"], "it is told")
        assert "WRONGTYPE" in str(heard["part_failed"][0]["error"])
        redis.delete("queue:default")
        until(lambda: redis.llen("queue:default") >= 10, "made up for")  # type: ignore[operator]
        one.stop()
        planned = [found["hm"]["planned"] for found in jobs_in(redis, "queue:default")]
        assert planned == pytest.approx([planned[0] + 0.2 * n for n in range(len(planned))])

    def test_the_server_was_emptied(self, app: App, redis: Redis) -> None:
        app.cron(every=0.1)(job(app))
        one = ticker(app)
        redis.flushall()
        one._declare_at = 0.0  # 15 s have passed
        until(lambda: (one.tick(), redis.llen("queue:default"))[1], "it ticks again")

    def test_what_cannot_be_read_stops_no_other(self, app: App, redis: Redis) -> None:
        heard = trouble(app)
        app.cron(every=0.1)(job(app))
        redis.hset("hm:crons", mapping={"a": "no json", "b": '{"timing":"lunar"}', "ü\xff": "{}"})
        one = ticker(app)
        until(lambda: (one.tick(), redis.llen("queue:default"))[1], "it ticks")
        assert sorted(facts["cron"] for facts in heard["cron_unreadable"]) == ["a", "b", "ü\xff"]
        assert [one.state for one in app.crons.list()] == ["unreadable", "unreadable", "active", "unreadable"]


class TestOverlap:
    """``overlap="skip"``: a tick is passed over while the job of an earlier one has not ended."""

    def ticked(self, app: App, redis: Redis, **options: Any) -> CronTicker:
        """A cron whose next tick is due whenever ``due`` says so."""
        app.cron(YEARLY, overlap="skip", **options)(job(app))
        return ticker(app)

    def due(self, redis: Redis, one: CronTicker) -> int:
        """Let a tick be due; how many jobs wait."""
        redis.zadd("hm:cron:ticks", {"job": time.time() - 400 * 86400})
        redis.incr("hm:cron:revision")
        one.look_now()
        one.tick()
        return redis.llen("queue:default")  # type: ignore[return-value]

    def test_a_tick_is_passed_over_until_the_job_has_ended(self, app: App, redis: Redis) -> None:
        heard = Heard(app, "cron_overlap", "cron_enqueued")
        one = self.ticked(app, redis)
        assert [self.due(redis, one) for _ in range(3)] == [1, 1, 1]
        [first] = jobs_in(redis, "queue:default")
        found = state(app, "job")
        assert (found.overlap, found.overlap_for, found.running.jid) == ("skip", 86400, first["jid"])
        assert (found.skipped.ticks, found.skipped.jid) == (2, first["jid"])
        assert (len(heard["cron_overlap"]), len(heard["cron_enqueued"])) == (2, 1)
        assert app.queues["default"].delete(first["jid"])
        assert state(app, "job").running is None
        assert self.due(redis, one) == 1
        [second] = jobs_in(redis, "queue:default")
        assert second["jid"] != first["jid"]
        assert state(app, "job").running.jid == second["jid"]

    def test_a_job_that_was_not_seen_to_end_counts_for_a_time(self, app: App, redis: Redis) -> None:
        one = self.ticked(app, redis, overlap_for=timedelta(minutes=10))
        assert self.due(redis, one) == 1
        [first] = jobs_in(redis, "queue:default")
        redis.delete("queue:default")  # as by another program
        assert self.due(redis, one) == 0
        redis.hset("hm:cron:running", "job", f"{time.time() - 601:.6f} {first['jid']}")
        assert state(app, "job").running is None
        assert self.due(redis, one) == 1

    def test_in_a_worker_nothing_overlaps_whatever_becomes_of_the_jobs(self, app: App, redis: Redis) -> None:
        running, runs, together = [0], [0], [0]
        ends: list[BaseException | None] = [None, Failure("no"), ValueError("retried"), Discard(), Kill(), None]

        @app.cron(every=0.1, overlap="skip")
        @app.job(name="long", retry_in=0)
        def long() -> None:
            running[0] += 1
            together[0] = max(together[0], running[0])
            moment = time.monotonic() + 0.25  # longer than two ticks
            until(lambda: time.monotonic() > moment, "its work")
            running[0] -= 1
            runs[0] += 1
            error = ends[runs[0] - 1] if runs[0] <= len(ends) else None
            if error is not None:
                raise error

        with working(app):
            until(lambda: runs[0] > len(ends), "every end was followed by a next run")
            until(lambda: state(app, "long").skipped, "it is told")
        assert together == [1]

    def test_a_broken_mark_is_told_and_stops_no_other(self, app: App, redis: Redis) -> None:
        heard = trouble(app)
        redis.set("hm:cron:running", "text")
        app.crons.add("other", "job", every=0.1, queue="other")
        one = self.ticked(app, redis)
        assert self.due(redis, one) == 0
        assert "WRONGTYPE" in str(heard["part_failed"][0]["error"])
        until(lambda: (one.tick(), redis.llen("queue:other"))[1], "the other ticks")

    def test_a_middleware_that_takes_the_name_away_changes_nothing(self, app: App, redis: Redis) -> None:
        @app.client_middleware.add
        def link(payload: dict[str, Any], call_next: Callable[[], Any]) -> Any:
            del payload["hm"]
            return call_next()

        one = self.ticked(app, redis)
        assert [self.due(redis, one) for _ in range(2)] == [1, 1], "the second waits for the end of the first"
        with working(app):
            until(lambda: redis.get("stat:processed") == b"1", "it has run")
            until(lambda: not redis.exists("queue:default"), "nothing waits")
        assert self.due(redis, one) == 1, "its end was seen"

    def test_a_tracked_job_is_written_down_from_its_tick_on(self, app: App, redis: Redis) -> None:
        redis.set("hm:history:on", "strict 1000000")

        @app.job(name="seen", track=True)
        def seen(n: int) -> None: ...

        app.crons.add("often", "seen", YEARLY, args=[7])
        missed_since(redis, "often", 2 * 366 * 86400)
        one = ticker(app)
        until(lambda: (one.tick(), redis.llen("queue:default"))[1], "it ticks")
        one.stop()
        by_hand = app.crons.run("often")
        jids = {job["jid"] for job in jobs_in(redis, "queue:default")}
        assert by_hand.jid in jids
        assert len(jids) == 2
        with working(app):
            until(lambda: int(redis.get("stat:processed") or 0) == 2, "both ran")  # type: ignore[arg-type]
        told = {jid: [row for row in stream(redis) if row["j"] == jid] for jid in jids}
        lives = [[row["s"] for row in rows if row["s"] != "working"] for rows in told.values()]  # of a short run not
        assert lives == [["enqueued", "finished"]] * 2
        assert all('"args":[7]' in rows[0]["d"] for rows in told.values())

    def test_a_run_by_hand_waits_for_nobody(self, app: App, redis: Redis) -> None:
        one = self.ticked(app, redis)
        assert self.due(redis, one) == 1
        app.crons.run("job")
        assert redis.llen("queue:default") == 2
        assert app.crons.list()[0].running.jid == jobs_in(redis, "queue:default")[0]["jid"]

    def test_a_cron_that_is_removed_takes_its_marks_along(self, app: App, redis: Redis) -> None:
        app.crons.add("live", "job", every=0.1, overlap="skip")
        one = CronTicker(app)
        until(lambda: (one.tick(), redis.hlen("hm:cron:skipped"))[1], "a tick is passed over")
        one.stop()
        assert app.crons.remove("live")
        assert not redis.exists("hm:cron:running", "hm:cron:skipped")


class TestChanging:
    def test_added_changed_and_removed_while_a_worker_runs(self, app: App, redis: Redis) -> None:
        """By a process that has no worker, for a worker that has no cron."""
        runs: list[tuple[str, list[Any]]] = []

        @app.job(name="note")
        def note(*args: Any) -> None:
            runs.append((current_job().payload["hm"]["cron"], list(args)))

        other = App(redis_url=app.config.redis_url)
        with working(app):
            until(lambda: redis.pubsub_numsub("hm:control")[0][1], "the worker listens")  # type: ignore[index]
            other.crons.add("live", "note", every=0.2, args=["one"])
            until(lambda: ("live", ["one"]) in runs, "it ticks")
            other.crons.add("live", "note", every=0.1, args=["two"])
            until(lambda: ("live", ["two"]) in runs, "it was changed")
            assert other.crons.pause("live")
            assert not other.crons.pause("live")
            until(lambda: state(other, "live").state == "paused", "it is paused")
            until(lambda: not redis.llen("queue:default") and not in_flight(redis), "what was enqueued has run")
            count, moved = len(runs), redis.get("hm:cron:revision")
            assert other.crons.run("live").admission == "created"
            until(lambda: len(runs) == count + 1, "run by hand, also when it is paused")
            assert redis.get("hm:cron:revision") == moved
            assert other.crons.resume("live")
            until(lambda: len(runs) > count + 2, "it goes on")
            assert other.crons.remove("live")
            assert not other.crons.remove("live")
            settled(redis, 0)
        assert other.crons.list() == []
        other.close()

    def test_pause_holds_at_once_and_what_was_planned_is_left_out(self, app: App, redis: Redis) -> None:
        app.cron("* * * * * *", missed="all")(job(app))
        one = CronTicker(app)
        one.start()
        until(lambda: redis.llen("queue:default"), "it ticks")
        app.crons.pause("job")
        held = redis.llen("queue:default")
        end = time.monotonic() + 2.2  # two ticks are planned meanwhile
        until(lambda: time.monotonic() > end, "two seconds")
        assert redis.llen("queue:default") == held
        resumed = time.time()
        app.crons.resume("job")
        until(lambda: redis.llen("queue:default") > held, "it goes on")  # type: ignore[operator]
        one.stop()
        assert jobs_in(redis, "queue:default")[held]["hm"]["planned"] > resumed - 0.01

    def test_code_that_changes(self, app: App, redis_url: str, redis: Redis) -> None:
        app.cron(YEARLY, tz="Europe/Paris", name="a")(app.cron(YEARLY, name="b")(job(app)))
        ticker(app).stop()
        assert (state(app, "a").tz, state(app, "b").origin) == ("Europe/Paris", "code")
        newer = App(redis_url=redis_url)
        newer.cron(YEARLY, tz="America/New_York", name="a")(job(newer))
        one = ticker(newer)
        assert state(newer, "a").tz == "America/New_York"
        assert state(newer, "b").state == "active", "an older worker may still declare it"
        redis.zincrby("hm:cron:declared", -61, "b")
        one._look_at = 0.0
        one.tick()
        assert (state(newer, "b").state, state(newer, "b").next) == ("retired", [])
        redis.zincrby("hm:cron:declared", -7 * 86400, "b")
        two = ticker(newer)
        one.stop()
        two._look_at = 0.0
        two.tick()
        assert [found.name for found in newer.crons.list()] == ["a"]
        newer.close()

    def test_what_stands_in_the_code_is_not_changed_live(self, app: App) -> None:
        app.cron(YEARLY)(job(app))
        ticker(app)
        with pytest.raises(DefinitionError, match="declared in code; change it there"):
            app.crons.add("job", "job", every=5)
        with pytest.raises(DefinitionError, match="declared in code; remove it there, or pause it"):
            app.crons.remove("job")

    @pytest.mark.parametrize("verb", ["pause", "resume", "run"])
    def test_unknown_names(self, app: App, verb: str) -> None:
        app.crons.add("nightly", "job", YEARLY)
        with pytest.raises(UnknownCron, match="there is no cron 'nightli'; did you mean 'nightly'"):
            getattr(app.crons, verb)("nightli")

    def test_how_it_stands(self, app: App, redis: Redis) -> None:
        app.crons.add("nightly", "HardJob", "30 2 * * *", tz="Europe/Paris", args=["bob", 5], queue="ruby")
        handle = app.crons.run("nightly")
        found = state(app, "nightly")
        assert found[:9] == (
            "nightly",
            "HardJob",
            "ruby",
            "30 2 * * *",
            None,
            "Europe/Paris",
            "latest",
            "active",
            "live",
        )
        assert len(found.next) == 5
        assert [past.jid for past in found.last] == [handle.jid]
        [pushed] = jobs_in(redis, "queue:ruby")
        assert (pushed["class"], pushed["args"], pushed["retry"], pushed["jid"]) == (
            "HardJob",
            ["bob", 5],
            True,
            handle.jid,
        )
        assert handle.status().state == "enqueued"

    def test_each_run_notes_how_it_ended(self, app: App, redis: Redis) -> None:
        ended = threading.Event()

        @app.job(name="turn", retry=1, retry_in=3600)
        def turn(what: str) -> None:
            if what == "hold":
                ended.wait(30)
            elif what != "ok":
                raise {"kill": Kill, "drop": Discard, "raise": ValueError}[what](what)

        for what in ("ok", "kill", "drop", "raise", "hold"):
            app.crons.add(what, turn, YEARLY, args=[what])
        jids = {what: app.crons.run(what).jid for what in ("ok", "kill", "drop", "raise", "hold")}
        again = app.crons.run("ok").jid

        def endings() -> dict[str, list[str]]:
            return {one.name: [past.ending for past in one.last] for one in app.crons.list()}

        with working(app):
            until(lambda: redis.zcard("retry") and redis.zcard("dead"), "they ran")
            until(lambda: endings()["ok"] == ["done", "done"] and endings()["drop"] == ["discarded"], "they are noted")
            assert endings() | {"kill": []} == {
                "ok": ["done", "done"],
                "kill": [],
                "drop": ["discarded"],
                "raise": [""],
                "hold": [""],
            }, "what is retried, or runs, has not ended"
            until(lambda: endings()["kill"] == ["dead"], "the dead one")
            ended.set()
            until(lambda: endings()["hold"] == ["done"], "it ended")
        [first, second] = reversed(state(app, "ok").last)
        assert (first.jid, second.jid) == (jids["ok"], again)
        assert first.planned <= first.enqueued <= first.ended <= redis.time()[0] + 1
        assert not redis.exists("hm:broken")
        app.dead.retry(app.dead.find(jids["kill"]))
        with working(app):
            until(lambda: not redis.llen("queue:default") and not in_flight(redis), "it ran once more")
        assert endings()["kill"] == ["dead"], "one note a run, the newest word"
        assert redis.llen("hm:cron:past:kill") == 1

    @pytest.mark.parametrize(
        ("expression", "every", "words"),
        [
            ("0 9 * * 1-5", None, "At 09:00 on Monday through Friday"),
            ("*/10 * * * * *", None, "Every 10th second of every minute"),
            (None, 90.0, "Every 1 min 30 s"),
            ("no cron at all", None, ""),
            (None, None, ""),
        ],
    )
    def test_when_it_runs_is_said_in_words(self, expression: str | None, every: float | None, words: str) -> None:
        assert timing.in_words(expression, every) == words

    def test_options_and_arguments_travel_exactly(self, app: App, redis: Redis) -> None:
        @app.job(name="rich", retry=3, tags=["vip"], expires=60)
        def rich(number: int, *, when: datetime) -> None: ...

        app.crons.add(
            "x",
            rich.using(queue="low", timeout=5),
            YEARLY,
            args=[10**30],
            kwargs={"when": datetime(2026, 1, 1, tzinfo=UTC)},
        )
        app.crons.run("x")
        rich.using(queue="low", timeout=5).enqueue(10**30, when=datetime(2026, 1, 1, tzinfo=UTC))
        by_cron, by_hand = jobs_in(redis, "queue:low")
        assert by_cron["hm"] == by_hand.pop("hm") | {"cron": "x", "planned": by_cron.pop("hm")["planned"]}
        for one in (by_cron, by_hand):
            for varying in ("jid", "created_at", "enqueued_at"):
                assert one.pop(varying)
        assert by_cron == by_hand
        assert by_cron["args"] == [10**30]

    async def _awaited(self, crons: Any) -> None:
        await crons.aadd("x", "job", YEARLY)
        assert (await crons.apause("x"), await crons.aresume("x")) == (True, True)
        assert (await crons.arun("x")).admission == "created"
        assert [one.name for one in await crons.alist()] == ["x"]
        assert await crons.aremove("x")

    def test_awaited(self, app: App) -> None:
        asyncio.run(self._awaited(app.crons))


def test_a_job_of_a_cron_may_be_pushed_by_anybody_too(app: App, redis: Redis) -> None:
    app.cron(YEARLY)(job(app))
    with working(app):
        push_raw(redis, '{"class":"job","args":[],"jid":"1"}')
        settled(redis, 1)
