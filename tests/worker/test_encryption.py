"""Encrypted arguments: nobody reads them without the key, wherever the job stands; whoever has it runs the job."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.fernet import Fernet
from redis import Redis
from sqlalchemy import create_engine, text

from henchman import App, ArgumentError, ConfigError, DefinitionError, IterableJob, current_job
from henchman.testing import fake
from support.outbox import made_anew
from support.secrets_said import stored_in
from support.worker import jobs_in, push_raw, until, working

CARD = "4111-1111-1111-1111"
OLD, NEW = (Fernet.generate_key().decode() for _ in range(2))
Make = Callable[..., App]


@pytest.fixture
def make(redis_url: str, tmp_path: Path) -> Iterator[Make]:
    """An app with the keys that are given; its history is kept in SQLite."""
    made: list[App] = []

    def one(keys: Any = None, **settings: Any) -> App:
        keys = {"old": OLD} if keys is None else keys
        url = f"sqlite:///{tmp_path}/history.sqlite"
        made.append(App(redis_url=redis_url, database_url=url, encryption_keys=keys, concurrency=2, **settings))
        return made[-1]

    yield one
    for app in made:
        app.close()


def paying(app: App, seen: list[Any], **options: Any) -> Any:
    @app.job(name="pay", encrypt=("card",), **options)
    def pay(order: int, card: str, *, note: str = "") -> None:
        seen.append((order, card))
        if current_job().attempt == 1 and order < 0:
            raise ValueError(f"refused {card}")

    return pay


def unread(redis: Redis, *files: Path) -> None:
    """Nobody reads the card in the server, nor in these files."""
    values = stored_in(redis)
    for value in values:
        assert CARD not in value
    for file in files:
        content = file.read_bytes()
        assert CARD.encode() not in content
    for value in values:  # nor in what is packed
        try:
            assert CARD.encode() not in zlib.decompress(value.encode("latin-1"))
        except (zlib.error, UnicodeEncodeError):
            continue


def test_nobody_reads_it_wherever_the_job_stands(make: Make, redis: Redis, tmp_path: Path) -> None:
    made_anew(f"sqlite:///{tmp_path}/shop.sqlite")
    app, seen = make(outbox=f"sqlite:///{tmp_path}/shop.sqlite"), list[Any]()
    pay = paying(app, seen, retry=1, retry_in=3600, backtrace=True, track=True)
    with app.batch("Paying") as batch:
        pay.enqueue(1, CARD)
    with app.workflow("Steps") as flow:
        flow.add(pay.call(2, CARD), name="pay")
    pay.using(delay=3600).enqueue(3, card=CARD)
    app.crons.add("yearly", pay, "0 3 1 1 *", args=(4, CARD))
    refused = pay.enqueue(-1, CARD)
    unread(redis)
    engine = create_engine(f"sqlite:///{tmp_path}/shop.sqlite")
    with engine.begin() as connection:
        app.outbox.write(connection, pay, 5, CARD)
        [payload] = connection.execute(text("SELECT payload FROM henchman_outbox")).scalars()
        assert CARD not in (payload if isinstance(payload, str) else bytes(payload).decode())
    engine.dispose()
    with working(app):
        until(lambda: sorted(seen) == [(-1, CARD), (1, CARD), (2, CARD), (5, CARD)], "all that are due have run")
        until(lambda: redis.zcard("retry") == 1, "one is tried again")
        until(lambda: batch.status().done == 1 and flow.status().done == 1, "batch and workflow are told")
        until(lambda: app.outbox.status().rows == 0, "the outbox is empty")
    unread(redis, tmp_path / "history.sqlite", tmp_path / "shop.sqlite")
    [stored] = [json.loads(one) for one in redis.zrange("retry", 0, -1)]  # type: ignore[union-attr]
    assert (stored["jid"], stored["error_message"]) == (refused.jid, "refused ***")
    assert stored["args"][1].startswith("encrypted:old:")
    [entry] = app.retries
    assert entry.arguments == ([-1, "encrypted"], {})


def test_a_new_key_seals_and_the_old_one_still_opens(make: Make, redis: Redis) -> None:
    seen: list[Any] = []
    paying(make({"old": OLD}), seen).enqueue(1, CARD)
    both = make({"new": NEW, "old": OLD})
    paying(both, seen).enqueue(2, CARD)
    kept = [re.findall(r"encrypted:(\w+):", json.dumps(one)) for one in jobs_in(redis, "queue:default")]
    assert kept == [["old"], ["new"]]
    with working(both):
        until(lambda: sorted(seen) == [(1, CARD), (2, CARD)], "both have run")
    assert redis.llen("queue:default") == redis.zcard("retry") == 0


def test_a_worker_without_the_key_loses_nothing(make: Make, redis: Redis) -> None:
    seen: list[Any] = []
    paying(make({"new": NEW}), seen).enqueue(1, CARD)
    poor = make({"old": OLD})
    paying(poor, seen, retry_in=1)
    with working(poor):
        until(lambda: redis.zcard("retry") == 1, "it is tried again later")
    [stored] = [json.loads(one) for one in redis.zrange("retry", 0, -1)]  # type: ignore[union-attr]
    assert "card is encrypted with the key 'new'" in stored["error_message"]
    assert "encryption_keys" in stored["error_message"]
    rich = make({"old": OLD, "new": NEW})
    paying(rich, seen)
    with working(rich):
        until(lambda: seen == [(1, CARD)], "a worker with the key runs it")
    assert redis.zcard("retry") == 0


def test_what_was_changed_on_its_way_is_refused(make: Make, redis: Redis) -> None:
    app, seen = make(), list[Any]()
    paying(app, seen, retry=0).enqueue(1, CARD)
    [job] = jobs_in(redis, "queue:default")
    redis.delete("queue:default")
    token = job["args"][1]
    job["args"][1] = token[:-10] + ("A" if token[-10] != "A" else "B") + token[-9:]
    push_raw(redis, json.dumps(job))
    with working(app):
        until(lambda: redis.zcard("dead") == 1, "it is dead")
    [stored] = [json.loads(one) for one in redis.zrange("dead", 0, -1)]  # type: ignore[union-attr]
    assert "cannot be decrypted" in stored["error_message"]
    assert seen == []


def test_what_came_unsealed_is_taken_as_it_is(make: Make, redis: Redis) -> None:
    """Jobs that were pushed before the parameter was encrypted."""
    app, seen = make(), list[Any]()
    paying(app, seen)
    push_raw(redis, json.dumps({"class": "pay", "args": [1, CARD], "jid": "a" * 24, "retry": True}))
    with working(app):
        until(lambda: seen == [(1, CARD)], "it has run")


def test_all_arguments_of_any_kind(make: Make, redis: Redis) -> None:
    app, seen = make(), list[Any]()

    @app.job(name="all", encrypt=True)
    def every(one: int, *more: Any, named: bytes, **rest: Any) -> None:
        seen.append((one, more, named, rest))

    every.enqueue(2**70, [CARD], {"deep": CARD}, named=CARD.encode(), other=None)
    unread(redis)
    with working(app):
        until(lambda: bool(seen), "it has run")
    assert seen == [(2**70, ([CARD], {"deep": CARD}), CARD.encode(), {"other": None})]


def test_a_business_key_is_that_of_the_clear_value_and_is_not_readable(make: Make, redis: Redis) -> None:
    app, seen = make(), list[Any]()
    pay = paying(app, seen, key="card", unique="until_success")
    first, second, other = pay.enqueue(1, CARD), pay.enqueue(1, CARD), pay.enqueue(1, "another")
    assert (second.jid, second.admission, second.differs) == (first.jid, "duplicate", False)
    assert (other.admission, pay.enqueue(2, CARD).differs) == ("created", True)
    unread(redis)
    with working(app):
        until(lambda: sorted(seen) == [(1, CARD), (1, "another")], "each once")


def test_an_iterable_job(make: Make, redis: Redis) -> None:
    app, seen = make(), list[Any]()

    @app.iterable(name="cards", encrypt=True)
    class Cards(IterableJob):  # type: ignore[type-arg]
        def build(self, card: str, *, cursor: Any) -> Any:
            return iter([(1, 1), (2, 2)])

        def each_iteration(self, item: int, card: str) -> None:
            seen.append((item, card))

    Cards.enqueue(CARD)
    unread(redis)
    with working(app):
        until(lambda: len(seen) == 2, "both items")
    assert {card for _, card in seen} == {CARD}


class TestMistakes:
    def test_no_key_is_set(self, make: Make) -> None:
        pay = paying(make({}), [])
        with pytest.raises(ConfigError, match="HENCHMAN_ENCRYPTION_KEYS"):
            pay.enqueue(1, CARD)

    def test_a_worker_without_any_key_does_not_start(self, make: Make) -> None:
        app = make({})
        paying(app, [])
        with pytest.raises(ConfigError, match="encryption_keys"):
            app.embed().start()

    @pytest.mark.parametrize(
        ("keys", "said"),
        [
            ({"new": "short"}, "URL-safe base64"),
            ({"a b": NEW}, "is no id"),
            ("no-key", "URL-safe base64"),
            (7, "keys by id"),
        ],
    )
    def test_of_a_setting(self, make: Make, keys: Any, said: str) -> None:
        with pytest.raises(ConfigError, match=said) as caught:
            make(keys)
        assert NEW not in str(caught.value)

    def test_no_such_parameter(self, make: Make) -> None:
        with pytest.raises(DefinitionError, match=r"encrypt=\['cart'\] names no parameter"):
            _defined(make())

    def test_what_json_cannot_hold_is_named_without_its_value(self, make: Make) -> None:
        with pytest.raises(ArgumentError, match="card") as caught:
            paying(make(), []).enqueue(1, {CARD: object()})
        assert CARD not in str(caught.value)


def _defined(app: App) -> None:
    @app.job(name="x", encrypt=("cart",))
    def x(card: str) -> None: ...


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HENCHMAN_ENCRYPTION_KEYS", f"new={NEW},old={OLD}")
    app = App()
    assert list(app.config.encryption_keys.items()) == [("new", NEW), ("old", OLD)]
    assert NEW not in repr(app.config)
    assert NEW not in repr(app.config.describe())


def test_a_fake_opens_what_it_seals(make: Make) -> None:
    app, seen = make(), list[Any]()
    pay = paying(app, seen)
    with fake(app) as jobs:
        pay.enqueue(1, CARD)
        assert CARD not in repr(jobs)
        jobs.perform_one()
    assert seen == [(1, CARD)]
