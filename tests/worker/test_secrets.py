"""Whatever a job raises or says: its secret arguments, and what is in them, are seen nowhere but in its payload."""

from __future__ import annotations

import base64
import io
import json
import logging
import os
import pickle
import subprocess
import sys
import traceback
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from henchman import App, ArgumentError
from henchman.history.database import Database
from henchman.history.reading import History
from henchman.inspector.base import Entry
from henchman.log import handler as log
from henchman.log.handler import LineHandler, subscribe
from henchman.wire.secret import Secrets
from support.secrets_said import CODE, NUMBER, PIN, VALUE, WAYS, Card, Shop, seen, stored_in
from support.worker import in_flight, push_raw, until, working


@contextmanager
def written(app: App, to: io.StringIO) -> Iterator[None]:
    """The log in all formats, and as another library's handler would write it."""
    root = logging.getLogger()
    handlers: list[logging.Handler] = [LineHandler(to, one("")) for one in log.FORMATS.values()]
    foreign = logging.StreamHandler(to)
    foreign.addFilter(lambda record: record.name.startswith("henchman"))  # what the job says is its own to hide
    foreign.setFormatter(_Everything())
    level = root.level
    for handler in (*handlers, foreign):
        root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    subscribe(app.events, "debug")
    try:
        yield
    finally:
        for handler in (*handlers, foreign):
            root.removeHandler(handler)
        root.setLevel(level)


class _Everything(logging.Formatter):
    """As a formatter for a log store does: the line, and every attribute of the record."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{super().format(record)} {json.dumps(record.__dict__, default=str)}"


def left_in(redis: Redis) -> str:
    """All that stands in the server, without the arguments of payloads, which have to be there."""
    return "\n".join(_without_arguments(value) for value in stored_in(redis))


def _without_arguments(text: str) -> str:
    try:
        job = json.loads(text)
    except ValueError:
        return text
    if not isinstance(job, dict) or "jid" not in job:
        return text
    trace = job.pop("error_backtrace", None)
    shown = zlib.decompress(base64.b64decode(trace)).decode() if trace else ""
    return json.dumps({name: one for name, one in job.items() if name not in ("args", "kwargs")}) + shown


@pytest.fixture
def shop(redis_url: str, tmp_path: Path) -> Shop:
    return Shop(redis_url, tmp_path)


def test_nothing_of_a_secret_is_seen_anywhere(shop: Shop, redis: Redis, redis_url: str, tmp_path: Path) -> None:
    app = shop.app
    with written(app, shop.log), working(app) as launcher:
        until(lambda: redis.get("hm:history:on"), "history is on")
        with app.batch("all ways") as batch:
            for way in WAYS:
                for retry in (False, 0, 3):
                    shop.pay.using(retry=retry).enqueue(way, VALUE)
                    shop.pay_async.using(retry=retry).enqueue(way, card=VALUE)
            shop.pay_typed.enqueue(Card(NUMBER, [PIN, PIN]))
        for way in WAYS:
            shop.pay.using(retry=0).enqueue(way, VALUE)
            shop.pay_async.using(retry=3).enqueue(way, card=VALUE)
        expected = 8 * len(WAYS) + 1
        until(lambda: not redis.exists("queue:default") and not in_flight(redis), "all ran")
        until(lambda: not redis.xlen("hm:history"), "history is written")
        del launcher
    assert redis.zcard("dead")
    assert redis.zcard("retry")
    found = left_in(redis)
    assert "ValueError" in found
    assert "***" in found
    assert [line for line in found.splitlines() if seen(line)] == []
    lines = shop.log.getvalue()
    assert "refused" in lines
    assert "cannot report" in lines
    assert [line for line in lines.splitlines() if seen(line)] == []
    history = History(Database(shop.database))
    rows = str(history.events(batch.id, limit=1000).events)
    history.close()
    assert rows.count("***") > expected
    assert seen(rows) == []
    raw = b"".join(file.read_bytes() for file in tmp_path.glob("history.sqlite*"))
    assert [one for one in (PIN, str(CODE), "joe@example") if one.encode() in raw] == []
    jid = json.loads(redis.zrange("retry", 0, 0)[0])["jid"]
    for words in (
        ["retries", "list"],
        ["dead", "list", "--json"],
        ["scheduled", "list"],
        ["job", jid],
        ["batch", batch.id],
    ):
        assert seen(_command(redis_url, tmp_path, *words)) == []


def _command(url: str, folder: Path, *words: str) -> str:
    """What the command line says that knows no app."""
    env = {**os.environ, "REDIS_URL": url, "HENCHMAN_DATABASE_URL": f"sqlite:///{folder}/history.sqlite"}
    done = subprocess.run(
        [sys.executable, "-m", "henchman", *words], capture_output=True, text=True, cwd=folder, env=env, check=False
    )
    assert done.returncode in (0, 5), done.stderr  # 5: of a batch that has errors
    assert "pay" in done.stdout or "all ways" in done.stdout
    return done.stdout + done.stderr


class Refused(Exception):
    """As a payment library's: it takes what it likes, and keeps it."""

    def __init__(self, card: str, *, status: int) -> None:
        super().__init__(f"refused {card}")
        self.card, self.status = card, status


class Odd(Exception):
    """Its text is made of something else than its arguments."""

    def __init__(self, card: str) -> None:
        super().__init__()
        self.card = [card]

    def __str__(self) -> str:
        return f"odd {self.card[0]}"


def test_handlers_get_nothing_that_is_secret(redis: Redis, redis_url: str) -> None:
    """Errors of their own class, payloads with stars; the payload itself when they ask for it."""
    app = App(redis_url=redis_url)
    errors: list[tuple[BaseException, Any]] = []
    deaths: list[tuple[Any, BaseException]] = []
    app.error_handlers.append(lambda error, facts: errors.append((error, facts)))
    app.death_handlers.append(lambda job, error: deaths.append((job, error)))

    @app.job(name="charge", secret=("card",), retry=0)
    def charge(way: str, card: Any, *, n: int = 1) -> None:
        if way == "refused":
            raise Refused(card["number"], status=402) from OSError(5, card["number"], PIN)
        if way == "odd":
            raise Odd(card["number"])
        WAYS[way](card)

    ways = [way for way in WAYS if way not in ("failure", "discard", "snooze", "said", "result that is none")]
    for way in (*ways, "refused", "odd"):
        charge.enqueue(way, VALUE)
    unfit = {"class": "charge", "jid": "x" * 24, "retry": 0, "args": ["unfit", VALUE, "more"]}
    foreign = {"class": "unknown", "jid": "y" * 24, "retry": False, "args": [NUMBER], "hm": {"secret": [0]}}
    push_raw(redis, json.dumps(unfit), json.dumps(foreign))
    with working(app):
        until(lambda: len(deaths) == len(ways) + 4, "all died")
    assert len(errors) == len(deaths)
    for error, facts in [*errors, *((error, {"job": job}) for job, error in deaths)]:
        shown = "".join(traceback.format_exception(error)) + repr(facts) + json.dumps(facts) + repr(vars(error))
        lines = [line for line in shown.splitlines() if "Error(" not in line and "File" not in line]
        assert [line for line in lines if seen(line)] == []
        assert "***" in json.dumps(facts["job"])
    by_way = {job["args"][0]: (job, error) for job, error in deaths}
    job, refused = by_way["refused"]
    assert job["args"] == ["refused", "***"]
    assert job.unmasked()["args"] == ["refused", VALUE]
    assert isinstance(refused, Refused)
    assert (refused.status, refused.card, str(refused)) == (402, "***", "refused ***")
    assert isinstance(refused.__cause__, OSError)
    assert refused.__cause__.errno == 5
    assert isinstance(by_way["odd"][1], Odd) or type(by_way["odd"][1]).__name__ == "Odd"
    assert str(by_way["odd"][1]) == "odd ***"
    assert by_way["group"][1].__class__ is ExceptionGroup
    assert '"card"' not in left_in(redis)


def test_what_is_said_of_arguments_that_do_not_fit(shop: Shop, redis: Redis) -> None:
    """At the push, and in the worker that reads a payload of another version."""

    @shop.app.job(name="strict", secret=("card", "rest"), retry=0)
    def strict(card: Strict, *, n: int = 0, **rest: Any) -> None: ...

    def refuse(card: Any, **rest: Any) -> str:
        with pytest.raises(ArgumentError) as caught:
            strict.enqueue(card, **rest)
        return str(caught.value)

    said = [
        refuse(NUMBER),
        refuse(Strict(NUMBER, [object()])),  # type: ignore[list-item]
        refuse(Strict(NUMBER, [PIN]), token={PIN: {1: NUMBER}}),
        refuse(Strict(NUMBER, [PIN]), token="\ud800" + PIN),
        refuse(Strict(NUMBER, [PIN]), token={CODE}),
    ]
    assert [text for text in said if seen(text)] == []
    payload = {"class": "strict", "queue": "default", "retry": 0, "hm": {"track": True}}
    cards: list[Any] = [
        NUMBER,
        {"number": NUMBER, "pins": [PIN], "joe@example.org": CODE},
        {"number": f"wrong {NUMBER}", "pins": [PIN]},
        {"number": [NUMBER], "pins": PIN},
        {"number": f"exits {NUMBER}", "pins": [PIN]},
    ]
    for index, card in enumerate(cards):
        push_raw(redis, json.dumps({**payload, "jid": f"{index:024}", "args": [card]}))
    with written(shop.app, shop.log), working(shop.app):
        until(lambda: redis.zcard("dead") == len(cards), "all were refused")
    found = left_in(redis)
    assert found.count("ArgumentError") >= len(cards) - 1
    assert "SystemExit" in found
    assert [line for line in (found + shop.log.getvalue()).splitlines() if seen(line)] == []


@dataclass
class Strict:
    number: str
    pins: list[str]

    def __post_init__(self) -> None:
        if self.number.startswith("wrong"):
            raise ValueError(f"{self.number} is no number")
        if self.number.startswith("exits"):
            raise SystemExit(f"{self.number!r} is no number")


def test_a_payload_says_itself_where_its_secrets_are(shop: Shop, redis: Redis) -> None:
    app = shop.app

    @app.job(name="plain")
    def plain(card: str) -> None: ...

    @app.job(name="tail", secret=("cards", "pin"))
    def tail(n: int, *cards: str, pin: str, shown: int = 1) -> None: ...

    @app.job(name="rest", secret=("n", "rest"))
    def rest(m: int, n: int, *, shown: int = 1, **rest: str) -> None: ...

    plain.enqueue("seen")
    tail.enqueue(1, NUMBER, PIN, pin=PIN, shown=2)
    rest.enqueue(1, CODE, shown=2, token=PIN)
    app.enqueue("tail", 1, NUMBER, queue="default")
    stored = [json.loads(one) for one in reversed(redis.lrange("queue:default", 0, -1))]
    assert [job.get("hm", {}).get("secret") for job in stored] == [None, [-2, "pin"], [1, "**"], [-2, "pin"]]
    shown = [Entry(json.dumps(job).encode()).call_text() for job in stored]
    assert shown == [
        'plain("seen")',
        'tail(1, "***", "***", pin="***", shown=2)',
        'rest(1, "***", shown="***", token="***")',
        'tail(1, "***")',
    ]
    hostile = {"class": "x", "args": [1, [2]], "jid": "x", "hm": {"secret": [[], {}, "a", -9, 10**50, None, True]}}
    assert Entry(json.dumps(hostile).encode()).call_text()


def test_what_stands_everywhere_is_not_hidden() -> None:
    """Texts of one or two characters, True, False and None are hidden only as part of the whole they stand in."""
    secrets = Secrets.of(["", "a", "42", True, None, 7, ["", "ab"], {"name": "x"}])
    assert secrets.hide("a name: True, None, 42 ab 7") == "a name: True, None, 42 ab 7"
    assert secrets.hide("of ['', 'ab'] and {\"name\": \"x\"}") == "of *** and ***"
    assert not Secrets.of([None, True, "ab"])
    assert Secrets.of(["abc"]).hide("abc abcd") == "*** ***d"


def test_of_too_many_secrets_everything_is_hidden() -> None:
    many = Secrets.of([[f"pin {number}" for number in range(10_000)]])
    assert "pin 9999" not in many.hide("it was pin 9999")
    loop: list[Any] = [PIN]
    loop.append(loop)
    assert Secrets.of([loop]).hide(PIN) == "***"


def test_the_texts_themselves_are_not_shown() -> None:
    secrets = Secrets.of([NUMBER])
    assert seen(f"{secrets} {secrets!r} {pickle.dumps(secrets)!r} {json.dumps({'x': secrets}, default=str)}") == []
