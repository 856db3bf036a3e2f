"""What people see of a fair queue: commands, pages, metrics, why, doctor, check."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result
from redis import Redis

from henchman import App
from henchman.cli.main import henchman
from henchman.console.render import tilde
from henchman.deploy.check import check
from henchman.inspector.doctor import examine
from henchman.inspector.prometheus import exposition
from henchman.store import fair
from henchman.store.call import ask, run
from support.browsing import Browser


def invoke(url: str, *words: str) -> Result:
    return CliRunner().invoke(henchman, ["--redis", url, *words])


@pytest.fixture
def jids(redis: Redis, redis_url: str) -> dict[str, str]:
    """Of the last job of each tenant; 30 wait of a, 3 of b, 2 with high priority."""
    app = App(redis_url=redis_url)

    @app.job(name="note", queue="f", fair_by="tenant")
    def note(tenant: str, number: int) -> None: ...

    note.enqueue_many([("a", n) for n in range(30)])
    found = {"b": [note.enqueue("b", n).jid for n in range(3)][-1]}
    found["high"] = [note.using(priority="high").enqueue("a", n).jid for n in range(2)][-1]
    run(app.connections, ask(fair.take_in(app.keys, "f")))
    found["a"] = next(iter(app.queues["f"].line("a"))).jid  # the newest
    app.close()
    return found


def test_the_list_says_which_queues_are_fair(redis_url: str, jids: dict[str, str]) -> None:
    told = invoke(redis_url, "queues", "--json")
    [one] = json.loads(told.stdout)["queues"]
    assert (one["name"], one["size"], one["fair"]) == ("f", 35, True)
    assert "fair" in invoke(redis_url, "queues").output


def test_tenants_as_a_table_and_as_json(redis_url: str, jids: dict[str, str]) -> None:
    told = invoke(redis_url, "queues", "tenants", "f", "--json")
    document = json.loads(told.stdout)
    assert {(one["tenant"], one["level"]): one["size"] for one in document["lines"]} == {
        ("a", "high"): 1,  # the other is next
        ("a", "normal"): 30,
        ("b", "normal"): 3,
    }
    assert (document["total"], document["arriving"]) == (3, 1)
    shown = invoke(redis_url, "queues", "tenants", "f").output
    assert "f+high@a" in shown
    assert "f@b" in shown
    assert "1 job next" in shown
    refused = invoke(redis_url, "queues", "tenants", "x")
    assert (refused.exit_code, "queue 'x' is not fair" in refused.output) == (1, True)


def test_a_weight_a_pause_and_a_clear_of_one_tenant(redis: Redis, redis_url: str, jids: dict[str, str]) -> None:
    assert "b has 5 turns in f" in invoke(redis_url, "queues", "weigh", "f", "b", "5").output
    assert invoke(redis_url, "queues", "pause", "f@b", "--reason", "away").exit_code == 0
    app = App(redis_url=redis_url)
    assert app.stats().enqueued == 35, "a line counts once"
    app.close()
    lines = json.loads(invoke(redis_url, "queues", "tenants", "f", "--json").stdout)["lines"]
    assert next((one["weight"], one["paused"]) for one in lines if one["tenant"] == "b") == (5, True)
    why = invoke(redis_url, "why", jids["b"])
    assert f"{jids['b']}: its tenant is paused in queue f (" in why.output, why.output
    assert "henchman queues unpause f@b" in why.output
    assert invoke(redis_url, "queues", "unpause", "f@b").exit_code == 0
    assert "3 jobs" in invoke(redis_url, "queues", "clear", "f@b", "--yes").output
    assert redis.exists("queue:f@b") == 0
    assert json.loads(invoke(redis_url, "queues", "--json").stdout)["queues"][0]["size"] == 32


def test_all_is_cleared(redis: Redis, redis_url: str, jids: dict[str, str]) -> None:
    assert "35 jobs" in invoke(redis_url, "queues", "clear", "f", "--yes").output
    left = {key.decode() for key in redis.keys("*")}  # type: ignore[union-attr]
    assert {one for one in left if one.startswith(("queue:", "hm:fair:turns"))} == set()
    assert redis.hget("hm:fair:facts:f", "waiting") is None


def test_why_names_the_place_in_line_and_the_turn(redis_url: str, jids: dict[str, str]) -> None:
    told = invoke(redis_url, "why", jids["a"]).output
    assert ": no worker serves queue f, where it waits, number 30 of tenant a, whose turn is number 1 of 2" in told
    assert invoke(redis_url, "job", jids["b"]).exit_code == 0


def test_metrics_of_the_longest_lines(redis_url: str, jids: dict[str, str]) -> None:
    app = App(redis_url=redis_url)
    text = run(app.connections, exposition(app.keys)).splitlines()
    assert 'henchman_queue_size{queue="f"} 35' in text
    assert 'henchman_tenant_size{queue="f",tenant="a",priority="normal"} 30' in text
    assert 'henchman_queue_tenants{queue="f"} 3' in text
    app.close()


def test_doctor_names_ruby_on_a_fair_queue(redis: Redis, redis_url: str, jids: dict[str, str]) -> None:
    app = App(redis_url=redis_url)
    checks = {one.name: one for one in examine(app.connections, app.keys, pings=1)}
    assert (checks["fair queues"].verdict, checks["fair queues"].text) == ("ok", "1 queue, served by turns")
    info = {"hostname": "r", "pid": 1, "concurrency": 5, "queues": ["f"], "identity": "r:1:x", "started_at": 1.0}
    redis.sadd("processes", "r:1:x")
    redis.hset("r:1:x", mapping={"info": json.dumps(info), "concurrency": 5, "busy": 0, "beat": "9999999999"})
    checks = {one.name: one for one in examine(app.connections, app.keys, pings=1)}
    assert checks["fair queues"].verdict == "warn"
    assert "r:1:x serves f" in checks["fair queues"].text
    app.close()


def test_the_check_of_a_deploy_reads_lines(redis_url: str, jids: dict[str, str]) -> None:
    app = App(redis_url=redis_url)  # the new code has no such job

    @app.job(name="other", queue="f")
    def other() -> None: ...

    found: Any = check(app)
    assert found.total == 35
    assert [one.count for one in found.fits.findings] == [35]
    app.close()


def test_pages_show_lines_with_shares(redis_url: str, jids: dict[str, str]) -> None:
    app = App(redis_url=redis_url)
    browser = Browser(app.console())
    page = browser.get("/queues/f")
    assert page.status == 200
    assert "Tenants 3 lines, by turns; 1 job is next or about to be taken into lines" in page.words
    assert "a normal 30 86 % 1" in page.words
    line = browser.get(f"/queues/{tilde('f@a')}")
    assert (line.status, "Size 30" in line.words) == (200, True), line.words
    told = json.loads(browser.get("/api/v1/queues/f/tenants").text)
    assert (told["total"], len(told["items"])) == (3, 3)
    app.close()
