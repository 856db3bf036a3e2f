"""What differs: what the failures of an error have in common that other runs have not."""

from __future__ import annotations

import datetime as dt
import json
import re
import time
from typing import Any

import pytest
from click.testing import CliRunner
from redis import Redis

from henchman import App
from henchman.cli.main import henchman
from henchman.inspector.differs import what_differs
from henchman.inspector.errors import ErrorGroup
from henchman.inspector.processes import ProcessState
from henchman.store.failures import group_errors
from henchman.store.leases import beat, host_name
from support.browsing import XSS, Browser
from support.worker import settled, until, working

NOW = 1_795_000_000.0 // 86_400 * 86_400 + 43_200  # at noon


def group(**facts: Any) -> ErrorGroup:
    """An error of the queue ``pay`` that began three days ago."""
    known: dict[str, Any] = {"id": "aaa", "error": "E", "message": "m", "place": "a:b", "jid": "j", "hours": {}}
    known |= {"first": NOW - 3 * 86_400, "last": NOW, "jobs": {"charge": 1}, "queues": {"pay": 1}}
    return ErrorGroup(**{"count": sum(facts.get("hosts", {"": 1}).values()), **known, **facts})


def process(host: str, tag: str = "v1", slots: int = 10, queues: tuple[str, ...] = ("pay",)) -> ProcessState:
    """A process that lives."""
    return ProcessState(
        f"{host}:1:ab", host, 1, tag, "henchman", NOW - 60, queues, (), slots, 0, NOW, 0, 0, False, False
    )


def test_a_host_that_has_nearly_all_failures_stands_out() -> None:
    alive = [process(f"web-{number}") for number in range(1, 5)]
    [one] = what_differs(group(hosts={"web-2": 38, "web-1": 2}), alive, NOW)
    assert (one.what, one.values, one.failures, one.of, one.others) == ("host", ("web-2",), 38, 40, 0.25)
    assert one.text == "Host web-2 has 38 of 40 failures, but 10 of the 40 slots that serve its queues"
    [two] = what_differs(group(hosts={"web-2": 20, "web-3": 20}), [*alive, process("web-5"), process("web-6")], NOW)
    assert two.text.startswith("Hosts web-2 and web-3 have 40 of 40 failures, but 20 of the 60 slots")


@pytest.mark.parametrize(
    ("hosts", "alive"),
    [
        ({"web-1": 4}, ["web-1", "web-2", "web-3", "web-4"]),  # too few
        ({"web-1": 9, "web-2": 11, "web-3": 10}, ["web-1", "web-2", "web-3"]),  # as they run
        ({"web-1": 5, "web-2": 1}, ["web-1", "web-2"]),  # chance does that
        ({"web-1": 40}, ["web-1"]),  # there is no other
        ({"old-1": 40, "web-1": 6}, ["web-1", "web-2"]),  # those before ran elsewhere
        ({f"web-{number}": 1 for number in range(10)}, [f"web-{number}" for number in range(20)]),  # chosen afterwards
    ],
)
def test_chance_stands_out_nowhere(hosts: dict[str, int], alive: list[str]) -> None:
    assert what_differs(group(hosts=hosts), [process(one) for one in alive], NOW) == []


def test_processes_that_serve_other_queues_are_no_others() -> None:
    alive = [process("web-1"), *(process(f"mail-{number}", queues=("mail",)) for number in range(9))]
    assert what_differs(group(hosts={"web-1": 100}), alive, NOW) == []


def test_a_version_stands_out_beside_hosts() -> None:
    alive = [process("web-1", "v1", 30), process("web-2", "v2", 10)]
    found = what_differs(group(hosts={"web-2": 50}, versions={"v2": 50}), alive, NOW)
    assert [one.what for one in found] == ["host", "version"]
    assert found[1].text == "Version v2 has 50 of 50 failures, but 10 of the 40 slots that serve its queues"


def test_an_hour_of_the_day_stands_out_once_there_is_a_day_to_compare() -> None:
    def at(hour: int, day: int = 0) -> int:
        midnight = dt.datetime.fromtimestamp(NOW, dt.UTC).replace(hour=0)
        return int(midnight.timestamp() // 3600) + hour - 24 * day

    nightly = {at(3): 20, at(3, day=1): 18, at(9): 1}
    [one] = what_differs(group(hours=nightly, count=39), [], NOW)
    assert one.text == "In the hour from 03:00 UTC fall 38 of 39 failures of the last two days"
    assert what_differs(group(hours=nightly, count=39, first=NOW - 80_000), [], NOW) == [], "not a day old"
    assert what_differs(group(hours={at(h): 3 for h in range(12)}, count=36), [], NOW) == []


def test_workers_write_down_where_and_at_which_attempt(app: App, redis: Redis) -> None:
    app.configure(tag="v7")

    @app.job(name="act", retry=2, retry_in=0)
    def act() -> None:
        raise ValueError("broken")

    act.enqueue()
    with working(app):
        until(lambda: redis.zcard("dead") == 1, "it is dead")
    settled(redis, 1) if not redis.exists("hm:errors:facts") else None
    [facts] = [json.loads(one) for name, one in redis.hgetall("hm:errors:facts").items() if name]  # type: ignore[union-attr]
    assert facts["hosts"] == {host_name(): 3}
    assert facts["versions"] == {"v7": 3}
    assert facts["attempts"] == {"1": 1, "2": 1, "3": 1}


def written(app: App, **facts: Any) -> None:
    """Forty failures on web-2 of two hosts, written down by workers."""
    now = time.time()
    one = {"id": "aaa", "error": "TimeoutError", "message": "no", "place": "a:b", "trace": [], "count": 40, "jid": "j"}
    one |= {"first": now, "last": now, "jobs": {"charge": 40}, "queues": {"pay": 40}, "hours": {}}
    app.connections.run(group_errors(app.keys, [one | facts], now))
    for host in ("web-1", "web-2"):
        info = {"hostname": host, "pid": 7, "tag": "v1", "version": "henchman", "queues": ["pay"], "concurrency": 10}
        record = {"info": json.dumps(info).encode(), "beat": f"{now}", "concurrency": "10"}
        app.connections.run(beat(app.keys, f"{host}:7:ab", record, {}, old_work=False))  # type: ignore[arg-type]


SAID = "Host web-2 has 40 of 40 failures, but 10 of the 20 slots that serve its queues"
FACTS = {"hosts": {"web-2": 40}, "versions": {"v1": 40}, "attempts": {"1": 30, "2": 10}}


def test_the_page_programs_and_the_command_line_say_the_same(app: App, redis: Redis, redis_url: str) -> None:
    written(app, **FACTS)
    browser = Browser(app.console())
    page = browser.get("/errors/aaa")
    assert f"{SAID}. 100 %, where 50 % were to be expected" in page.words
    assert "Attempts 1 30 , 2 10" in page.words
    assert "/errors?host=web-2" in page.text
    told = json.loads(browser.get("/api/v1/errors/aaa").text)
    assert [one["text"] for one in told["differs"]] == [SAID]
    assert (told["hosts"], told["attempts"]) == ({"web-2": 40}, {"1": 30, "2": 10})
    said = CliRunner().invoke(henchman, ["errors", "aaa", "--redis", redis_url])
    assert said.exit_code == 0
    assert f"differs    {SAID}" in said.output
    assert json.loads(CliRunner().invoke(henchman, ["errors", "aaa", "--json", "--redis", redis_url]).output)["differs"]


def test_errors_are_narrowed_to_a_host_and_a_version(app: App, redis: Redis, redis_url: str) -> None:
    written(app, **FACTS)
    written(app, id="bbb", error="KeyError", hosts={"web-1": 40}, versions={"v2": 40})
    browser = Browser(app.console())
    page = browser.get("/errors")
    for link in ("host=web-1", "host=web-2", "version=v1", "version=v2"):
        assert f"/errors?{link}" in page.text
    narrow = browser.get("/errors?host=web-2&show=new")
    assert "Errors 1" in narrow.words
    assert "host web-2 ✕" in narrow.words
    assert "/errors?show=new" in narrow.text, "the way back keeps the other filter"
    assert not re.search(r"/errors\?host=web-1", narrow.text)
    assert [one["id"] for one in json.loads(browser.get("/api/v1/errors?version=v2").text)["items"]] == ["bbb"]
    said = CliRunner().invoke(henchman, ["errors", "--host", "web-1", "--json", "--redis", redis_url])
    assert [one["id"] for one in json.loads(said.output)["errors"]] == ["bbb"]


def test_groups_of_older_workers_and_wild_names_are_shown(app: App, redis: Redis) -> None:
    written(app)
    browser = Browser(app.console())
    assert "Nothing stands out" in browser.get("/errors/aaa").words
    written(app, hosts={XSS: 1, "a" * 500: 1}, versions={"": 2}, attempts={XSS: 1})
    for page in ("/errors", "/errors/aaa"):
        shown = browser.get(page)
        assert shown.status == 200
        assert "<script>alert" not in shown.text
    redis.delete("hm:errors:facts")
    written(app, count=3)
    assert "It has failed 3 times: too few to tell" in browser.get("/errors/aaa").words
