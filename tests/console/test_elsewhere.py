"""Links to other sites, on the pages of a job, an error, a queue and a process."""

from __future__ import annotations

import json
import time

import pytest
from redis import Redis

from henchman import App
from henchman.config import Config
from henchman.console.render import links_elsewhere, tilde
from henchman.errors import ConfigError
from support.browsing import XSS, Browser
from support.worker import until, working

LOGS = "https://logs.example/?q={jid}&c={class}"


def shown(app: App, page: str) -> list[str]:
    return [one for one in Browser(app.console()).get(page).links if "example" in one]


def test_a_job_leads_to_its_logs(redis: Redis, redis_url: str) -> None:
    links = {"logs": LOGS, "batch <b>": "https://batches.example/{batch}", "host": "/hosts.example/{host}"}
    app = App(redis_url=redis_url, console_links=links)
    jid = "a/b?&<x>"
    redis.zadd("dead", {json.dumps({"class": XSS, "queue": "q", "args": [], "jid": jid}): time.time()})
    page = f"/jobs/{tilde(jid)}"
    told = Browser(app.console()).get(page)
    assert XSS not in told.text
    assert "Elsewhere: logs" in told.words
    assert "batch <b>" not in told.words, "it is of no batch"
    [link] = shown(app, page)
    assert link.startswith("https://logs.example/?q=a%2Fb%3F%26%3Cx%3E&c=%3Cscript%3E")


def test_an_error_a_queue_and_a_process_lead_there_too(redis: Redis, redis_url: str) -> None:
    links = {
        "error": "https://errors.example/{error}/{fingerprint}?job={class}&queue={queue}",
        "queue": "https://queues.example/{queue}",
        "host": "https://hosts.example/{host}",
    }
    app = App(redis_url=redis_url, console_links=links, heartbeat=1)

    @app.job(name="shop.pay", queue="money")
    def pay() -> None:
        raise KeyError("no card")

    assert shown(app, "/queues/money") == ["https://queues.example/money"]
    with working(app):
        pay.enqueue()
        until(lambda: redis.zcard("retry") == 1, "it failed")
        [identity] = [one.decode() for one in redis.zrange("hm:identities", 0, -1)]  # type: ignore[union-attr]
        assert any(one.startswith("https://hosts.example/") for one in shown(app, f"/processes/{identity}"))
        until(lambda: "KeyError" in Browser(app.console()).get("/errors").words, "its error is known")
    [group] = {
        one for one in Browser(app.console()).get("/errors").links if one.startswith("/errors/") and len(one) > 15
    }
    fingerprint = group.partition("?")[0].removeprefix("/errors/")
    found = shown(app, f"/errors/{fingerprint}")
    assert f"https://errors.example/KeyError/{fingerprint}?job=shop.pay&queue=money" in found
    [failed] = [
        one for one in shown(app, f"/jobs/{json.loads(redis.zrange('retry', 0, 0)[0])['jid']}") if "errors" in one
    ]  # type: ignore[index]
    assert failed == f"https://errors.example/KeyError/{fingerprint}?job=shop.pay&queue=money"


def test_of_several_values_none_is_meant() -> None:
    assert links_elsewhere({"q": "/{queue}"}, queue={"a": 1}) == [("q", "/a")]
    assert links_elsewhere({"q": "/{queue}", "home": "/"}, queue={"a": 1, "b": 2}) == [("home", "/")]


def test_without_links_there_is_no_line(app: App, redis: Redis) -> None:
    redis.sadd("queues", "q")
    assert "Elsewhere" not in Browser(app.console()).get("/queues/q").words


def test_the_environment_says_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HENCHMAN_CONSOLE_LINKS", f"logs={LOGS}, a=/x?y=1,2,the wiki=http://w.example/")
    found = Config.load().console_links
    assert found == {"logs": LOGS, "a": "/x?y=1,2", "the wiki": "http://w.example/"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"x": "javascript:alert(1)"}, "begins with https://"),
        ({"x": "https://a.example/{jit}"}, "there is no {jit}; did you mean 'jid'?"),
        ({"x": "https://a.example/{jid"}, "there is no {jid"),
        ({"x": "https://a.example/jid}"}, "there is no }"),
        ({"x": "https://a.example/{}"}, "there is no {}"),
        ({"x": "https://{host}/"}, "begins with https://"),
        ({"x": "https://a.example/ b"}, "begins with https://"),
        ({"x": 5}, "is 5"),
        ({"": "/"}, "addresses by name"),
        ("https://a.example", "addresses by name"),
        ({f"n{number}": "/" for number in range(21)}, "at most 20"),
    ],
)
def test_what_is_no_link_is_refused(given: object, said: str) -> None:
    with pytest.raises(ConfigError, match="console_links") as caught:
        App(console_links=given)  # type: ignore[arg-type]
    assert said in str(caught.value)
