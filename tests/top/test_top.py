"""``henchman top`` on a real server, driven by its keys, without a terminal."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import time
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from click import Context
from click.testing import CliRunner
from redis import Redis
from textual.pilot import Pilot
from textual.widgets import DataTable, Static

from henchman import App
from henchman.cli.main import henchman
from henchman.oncall.finding import COMMANDS
from henchman.store import metrics
from henchman.store.failures import group_errors
from henchman.top.screen import Top, TopMessage, YesOrNo
from henchman.top.tabs import TABS
from support.browsing import Browser
from support.incidents import NightShop

LIMIT = 60.0  # seconds until what is waited for must be on the screen
DEAD = "d" * 24
XSS = "<b>[red]x[/red]\u202e"


class Seen:
    """What stands on the screen."""

    def __init__(self, top: Top, pilot: Pilot[None]) -> None:
        self.top, self.pilot = top, pilot

    def text(self, part: str) -> str:
        return str(self.top.screen_stack[0].query_one(f"#{part}", Static).render())

    def rows(self) -> list[list[str]]:
        table = self.top.screen_stack[0].query_one("#rows", DataTable)
        return [[str(cell) for cell in table.get_row_at(place)] for place in range(table.row_count)]

    def columns(self) -> list[str]:
        table = self.top.screen_stack[0].query_one("#rows", DataTable)
        return [str(one.label) for one in table.columns.values()]

    async def until(self, fact: Callable[[], Any], what: str) -> None:
        end = asyncio.get_running_loop().time() + LIMIT
        while not fact():
            assert asyncio.get_running_loop().time() < end, f"not on the screen: {what}; {self.rows()}"
            await self.pilot.pause(0.02)

    async def to(self, title: str) -> None:
        place = next(place for place, one in enumerate(TABS, 1) if one.title == title)
        await self.pilot.press(str(place))
        columns = list(TABS[place - 1].columns)
        table = self.top.screen_stack[0].query_one("#rows", DataTable)
        await self.until(lambda: [str(one.label) for one in table.columns.values()] == columns, title)


@pytest.fixture
def seen(redis_url: str) -> Callable[..., None]:
    """``seen(steps)``: run ``steps(Seen)`` on a screen of that size."""

    def drive(
        steps: Callable[[Seen], Coroutine[Any, Any, None]], *, may_act: bool = False, size: tuple[int, int] = (80, 24)
    ) -> None:
        async def run() -> None:
            top = Top(App(redis_url=redis_url), "shop", may_act=may_act, every=0.1, author="ana@shop")
            async with top.run_test(size=size) as pilot:
                await steps(Seen(top, pilot))

        asyncio.run(run())

    return drive


def bury(redis: Redis, jid: str = DEAD, name: str = "ship", args: str = "42") -> None:
    job = {"class": name, "jid": jid, "queue": "mail", "args": [args], "retry_count": 0, "created_at": 1.0}
    job |= {"error_class": "TimeoutError", "error_message": f"no answer {args}", "failed_at": 2.0}
    redis.zadd("dead", {json.dumps(job): 100.0})


def test_every_tab_opens_on_an_empty_server_and_says_so(seen: Callable[..., None]) -> None:
    async def steps(screen: Seen) -> None:
        for one in TABS:
            await screen.to(one.title)
            await screen.until(lambda one=one: one.empty in screen.text("detail"), one.empty)
            assert screen.rows() == []
        assert "READ ONLY" in screen.text("head")

    seen(steps)


def test_a_finding_leads_to_the_queue_and_counts_stand_above(
    redis: Redis, seen: Callable[..., None], redis_url: str
) -> None:
    App(redis_url=redis_url).enqueue("ship", 1, queue="mail")

    async def steps(screen: Seen) -> None:
        await screen.until(screen.rows, "a finding")
        assert screen.rows()[0][:2] == ["✕", "no worker"]
        assert "start one: henchman work" in screen.text("detail")
        assert "enq 1" in screen.text("head")
        await screen.pilot.press("enter")
        await screen.until(lambda: "No worker is alive" in screen.text("detail"), "the processes")
        await screen.to("Queues")
        await screen.until(lambda: screen.rows() and screen.rows()[0][:2] == ["mail", "1"], "the queue")
        assert screen.rows()[0][3] == "nobody serves it"

    seen(steps)


def test_a_dead_job_says_why_first_and_is_retried_after_a_question(redis: Redis, seen: Callable[..., None]) -> None:
    bury(redis)

    async def steps(screen: Seen) -> None:
        await screen.to("Dead")
        await screen.until(screen.rows, "the dead job")
        assert "TimeoutError: no answer 42" in screen.text("detail")
        await screen.pilot.press("w")
        await screen.until(lambda: isinstance(screen.top.screen, TopMessage), "why")
        told = str(screen.top.screen.query_one(Static).render())
        assert "dead since" in told.splitlines()[3], told
        assert f"→ henchman dead retry {DEAD}    x: Retry" in told
        await screen.pilot.press("x")
        await screen.until(lambda: isinstance(screen.top.screen, YesOrNo), "the act beside it asks too")
        await screen.pilot.press("n")
        assert redis.zcard("dead") == 1, "no means no"
        await screen.pilot.press("R")
        await screen.until(lambda: isinstance(screen.top.screen, YesOrNo), "the question")
        await screen.pilot.press("n")
        assert redis.zcard("dead") == 1, "no means no"
        await screen.pilot.press("R")
        await screen.until(lambda: isinstance(screen.top.screen, YesOrNo), "the question")
        await screen.pilot.press("y")
        await screen.until(lambda: not screen.rows(), "it is gone")

    seen(steps, may_act=True)
    assert redis.zcard("dead") == 0
    assert redis.llen("queue:mail") == 1


def test_errors_have_a_tab_and_lead_to_where_they_were_raised(
    redis: Redis, seen: Callable[..., None], redis_url: str
) -> None:
    app, now = App(redis_url=redis_url), time.time()
    group = {"id": "abc", "error": "TimeoutError", "message": "no answer", "place": "shop:sync", "jid": DEAD}
    group |= {"trace": ["shop.py:7:in sync"], "count": 9, "first": now, "last": now, "jobs": {"sync": 9}}
    group |= {"queues": {"pay": 9}, "hours": {str(int(now // 3600)): 9}}
    app.connections.run(group_errors(app.keys, [group], now))

    async def steps(screen: Seen) -> None:
        await screen.until(screen.rows, "a finding")
        assert screen.rows()[0][:2] == ["✕", "new error"]
        assert "henchman errors abc" in screen.text("detail")
        await screen.pilot.press("g", "e")
        await screen.until(lambda: screen.rows() and screen.rows()[0][:3] == ["new", "TimeoutError", "sync"], "its tab")
        await screen.pilot.press("enter")
        await screen.until(lambda: isinstance(screen.top.screen, TopMessage), "its traceback")
        assert "shop.py:7:in sync" in str(screen.top.screen.query_one(Static).render())
        await screen.pilot.press("x", "g", "q")
        await screen.until(lambda: [str(one) for one in screen.columns()][:1] == ["queue"], "the queues, not the end")

    seen(steps)
    app.close()


def test_its_findings_are_those_of_the_console(redis: Redis, seen: Callable[..., None], redis_url: str) -> None:
    app, now = App(redis_url=redis_url), time.time()
    shop = NightShop(app, redis)
    for happens in (shop.skewed_host, shop.missed_cron, shop.old_code, shop.retry_storm, shop.no_consumer):
        happens()
    group = {"id": "abc", "error": "TimeoutError", "message": "no answer", "place": "shop:sync", "jid": DEAD}
    group |= {
        "trace": [],
        "count": 9,
        "first": now,
        "last": now,
        "jobs": {"sync": 9},
        "queues": {"pay": 9},
        "hours": {},
    }
    app.connections.run(group_errors(app.keys, [group], now))
    told = json.loads(Browser(app.console()).get("/api/v1/findings").text)["items"]
    kinds = {one["kind"] for one in told}
    assert kinds >= {"host clock", "missed cron", "old code", "retry storm", "nobody serves it", "new error"}

    async def steps(screen: Seen) -> None:
        await screen.until(lambda: len(screen.rows()) == len(told), "as many")
        assert [one[1] for one in screen.rows()] == [one["kind"] for one in told]

    seen(steps)
    app.close()


def test_an_error_is_resolved_and_opened_again(redis: Redis, seen: Callable[..., None], redis_url: str) -> None:
    app, now = App(redis_url=redis_url), time.time()
    group = {"id": "abc", "error": "TimeoutError", "message": "no answer", "place": "shop:sync", "jid": DEAD}
    group |= {
        "trace": [],
        "count": 9,
        "first": now,
        "last": now,
        "jobs": {"sync": 9},
        "queues": {"pay": 9},
        "hours": {},
    }
    app.connections.run(group_errors(app.keys, [group], now))

    async def steps(screen: Seen) -> None:
        await screen.until(lambda: screen.rows() and screen.rows()[0][1] == "new error", "a finding")
        await screen.to("Errors")
        for key, state in (("V", "resolved"), ("O", "new")):
            await screen.until(screen.rows, "the error")
            await screen.pilot.press(key)
            await screen.until(lambda: isinstance(screen.top.screen, YesOrNo), "the question")
            await screen.pilot.press("y")
            await screen.until(lambda state=state: screen.rows()[0][0] == state, state)
            if state == "resolved":
                await screen.pilot.press("1")
                await screen.until(lambda: "All is well." in screen.text("detail"), "no finding any more")
                await screen.to("Errors")

    seen(steps, may_act=True)
    assert not redis.exists("hm:errors:handled")
    app.close()


def test_who_paused_why_and_who_is_lost_stands_there_and_names_leave_room(
    redis: Redis, seen: Callable[..., None], redis_url: str
) -> None:
    app = App(redis_url=redis_url)
    night = NightShop(app, redis)
    app.queues["mail"].pause("the provider is away", by="ana")
    night.dead_host()
    bury(redis, name=f"shop.{'integrations.' * 9}sync")

    async def steps(screen: Seen) -> None:
        await screen.to("Queues")
        await screen.until(screen.rows, "the queue")
        assert screen.rows()[0][3] == "paused"
        assert "paused by ana, " in screen.text("detail")
        assert ": the provider is away" in screen.text("detail")
        await screen.to("Processes")
        await screen.until(lambda: any(row[0] == "lost host-3:412" for row in screen.rows()), "the lost one")
        await screen.to("Dead")
        await screen.until(screen.rows, "the dead job")
        _, job, error, _ = screen.rows()[0]
        assert job.startswith("…")
        assert job.endswith(".sync")
        assert len(job) <= 26
        assert error == "TimeoutError: no answer 42"
        await screen.pilot.press("slash", *"shop.integ", "enter")
        await screen.until(lambda: len(screen.rows()) == 1, "found by what the cell has no room for")

    seen(steps)
    app.close()


def test_a_finding_is_muted_and_a_pause_has_its_author(redis: Redis, seen: Callable[..., None], redis_url: str) -> None:
    app = App(redis_url=redis_url)
    night = NightShop(app, redis)
    night.paused()
    app.queues["default"].pause("a test")

    async def steps(screen: Seen) -> None:
        await screen.until(screen.rows, "a finding")
        assert screen.rows()[0][1] == "paused"
        await screen.pilot.press("M")
        await screen.until(lambda: isinstance(screen.top.screen, YesOrNo), "a question")
        await screen.pilot.press("y")
        await screen.until(lambda: "All is well." in screen.text("detail"), "it is muted")
        assert "muted for 1 h: Queue mail is paused" in screen.text("said")
        await screen.pilot.press("space", "space")
        assert "? all keys" in screen.text("said"), "what one needs first, where there is nothing else to say"
        app.queues["mail"].unpause()
        await screen.to("Queues")
        await screen.until(lambda: any(row[0] == "mail" and row[3] == "" for row in screen.rows()), "it goes on")
        while screen.rows()[screen.top.screen_stack[0].query_one("#rows", DataTable).cursor_row][0] != "mail":
            await screen.pilot.press("j")
        await screen.pilot.press("P", "y")
        await screen.until(lambda: any(row[:1] + row[3:] == ["mail", "paused"] for row in screen.rows()), "paused")

    seen(steps, may_act=True)
    assert redis.hlen("hm:findings:muted") == 1
    assert json.loads(redis.hget("hm:pauses", "mail"))["by"] == "ana@shop"  # type: ignore[arg-type]
    app.close()


def test_it_only_looks_unless_write_was_said(redis: Redis, seen: Callable[..., None]) -> None:
    bury(redis)

    async def steps(screen: Seen) -> None:
        await screen.to("Dead")
        await screen.until(screen.rows, "the dead job")
        for key in "RKD":
            await screen.pilot.press(key)
            assert not isinstance(screen.top.screen, YesOrNo)
        assert "Read only" in screen.text("said")

    seen(steps)
    assert redis.zcard("dead") == 1


def test_a_filter_finds_and_escape_takes_it_away(redis: Redis, seen: Callable[..., None]) -> None:
    for number in range(30):
        bury(redis, f"{number:024}", "bill" if number == 7 else "ship", str(number))

    async def steps(screen: Seen) -> None:
        await screen.to("Dead")
        await screen.until(lambda: len(screen.rows()) == 30, "all")
        await screen.pilot.press("slash", *"bill", "enter")
        await screen.until(lambda: len(screen.rows()) == 1, "the one")
        assert screen.rows()[0][1] == "bill"
        await screen.pilot.press("escape")
        await screen.until(lambda: len(screen.rows()) == 30, "all again")

    seen(steps)


def test_the_cursor_stays_on_its_job_and_nothing_moves_while_it_is_held(
    redis: Redis, seen: Callable[..., None]
) -> None:
    for number in range(3):
        bury(redis, f"{number:024}", args=str(number))

    async def steps(screen: Seen) -> None:
        await screen.to("Dead")
        await screen.until(lambda: len(screen.rows()) == 3, "all")
        await screen.pilot.press("j")
        kept = screen.text("detail")
        bury(redis, "f" * 24, args="new")
        redis.zincrby("dead", 5, next(one for one in redis.zrange("dead", 0, -1) if b'"new"' in one))
        await screen.until(lambda: len(screen.rows()) == 4, "the new one")
        assert screen.text("detail") == kept, "it stands on the same job"
        await screen.pilot.press("space")
        bury(redis, "e" * 24, args="newer")
        await screen.pilot.pause(0.5)
        assert len(screen.rows()) == 4
        await screen.pilot.press("space")
        await screen.until(lambda: len(screen.rows()) == 5, "it goes on")

    seen(steps)


@pytest.mark.parametrize("size", [(80, 24), (160, 50), (40, 10)])
def test_hostile_text_is_text_at_every_size(redis: Redis, seen: Callable[..., None], size: tuple[int, int]) -> None:
    bury(redis, name=XSS, args="\x1b[2J" + "x" * 5000)
    redis.zadd("dead", {b"\xff no json [bold]": 1.0})

    async def steps(screen: Seen) -> None:
        await screen.to("Dead")
        await screen.until(lambda: len(screen.rows()) == 2, "both")
        shown = f"{screen.rows()} {screen.text('detail')}"
        assert "[red]x[/red]" in shown, "markup is text"
        assert "\u202e" not in shown
        assert "\x1b" not in shown
        await screen.pilot.press("question_mark")
        await screen.until(lambda: isinstance(screen.top.screen, TopMessage), "the keys")

    seen(steps, size=size)


def test_a_server_that_goes_away_is_waited_for(redis: Redis, seen: Callable[..., None]) -> None:
    bury(redis)

    async def steps(screen: Seen) -> None:
        await screen.to("Dead")
        await screen.until(screen.rows, "the dead job")
        redis.config_set("maxclients", 1)
        redis.client_kill_filter(_type="normal", skipme=True)
        await screen.until(lambda: "The server is away" in screen.text("said"), "it says so")
        assert screen.rows(), "what was seen stays"
        redis.config_set("maxclients", 1000)
        await screen.until(lambda: "The server is away" not in screen.text("said"), "it is back")

    seen(steps)


def test_it_wants_a_terminal(redis_url: str) -> None:
    found = CliRunner().invoke(henchman, ["top", "--redis", redis_url])
    assert found.exit_code == 1
    assert "needs a terminal" in found.output


def test_status_begins_with_what_is_wrong_and_every_command_exists(redis: Redis, redis_url: str) -> None:
    App(redis_url=redis_url).enqueue("ship", 1, queue="mail")
    said = CliRunner().invoke(henchman, ["status", "--redis", redis_url]).output.splitlines()
    assert said[:2] == ["✕ No worker is alive, and 1 job waits.", "    henchman work pkg.mod:app"]
    for text in COMMANDS.values():
        found: Any = henchman
        for word in text.split()[1:]:
            if word.startswith(("-", "{", "pkg")) or not hasattr(found, "get_command"):
                break
            found = found.get_command(Context(found), word)
            assert found is not None, text


def test_what_runs_stands_beside_what_is_usual_and_the_filter_knows_words(
    redis: Redis, seen: Callable[..., None], redis_url: str
) -> None:
    app = App(redis_url=redis_url)
    NightShop(app, redis).dead_host()  # shop.report, for a hundred seconds
    steps = [0] * 26
    steps[metrics.bucket_of(400)] = 9
    counted = {"shop.report": metrics.Counted(9, 0, 3600, steps)}
    app.connections.run(metrics.flush(app.keys, dt.datetime.now(dt.UTC), counted, ("8",)))
    for name in ("shop.sync", "shop.sync_later"):
        bury(redis, name=name, jid=f"{name:0<24}")

    async def look(screen: Seen) -> None:
        await screen.to("Busy")
        await screen.until(screen.rows, "the running job")
        assert screen.rows()[0][1].endswith(" × usual")
        assert 200 <= int(screen.rows()[0][1].split()[0]) < 300
        await screen.to("Dead")
        await screen.until(lambda: len(screen.rows()) == 2, "both")
        await screen.pilot.press("slash", *"class:shop.sync", "enter")
        await screen.until(lambda: [row[1] for row in screen.rows()] == ["shop.sync"], "that one alone")

    seen(look)
    app.close()
