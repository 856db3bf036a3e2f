"""From the commit to the run: a real worker relays; the command line shows how it stands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from redis import Redis

from henchman import App
from henchman.cli.main import henchman
from henchman.errors import ConfigError
from henchman.inspector.prometheus import exposition
from henchman.outbox.relay import Relay
from henchman.store.call import run
from henchman.testing import fake
from support.outbox import Hands, Shop, relaying, tick_until
from support.worker import settled, until, working


def invoke(shop: Shop, redis_url: str, *args: str, **env: str) -> Any:
    settings = {"HENCHMAN_REDIS_URL": redis_url, "HENCHMAN_OUTBOX": shop.url, "HENCHMAN_DATABASE_URL": ""} | env
    return CliRunner().invoke(henchman, args, env={name: value or None for name, value in settings.items()})


def test_a_worker_runs_what_was_committed_and_nothing_else(shop: Shop, redis: Redis) -> None:
    ran: list[int] = []

    @shop.app.job(name="note")
    def note(number: int) -> None:
        ran.append(number)

    with working(shop.app) as launcher:
        [relay] = [one for one in launcher.companions if isinstance(one, Relay)]
        until(lambda: relay.leads, "it leads")
        with shop.session() as session:
            shop.app.outbox.write(session, note, 1)
            session.commit()
            shop.app.outbox.write(session, note, 2)
            session.rollback()
            handle = shop.app.outbox.write(session, note, 3)
            session.commit()
        settled(redis, 2)
        assert sorted(ran) == [1, 3]
        assert handle.jid
        until(lambda: shop.count() == 0 and not redis.exists(shop.sent()), "nothing is left")
    assert not redis.exists(shop.lease())
    assert not shop.events


def test_a_commit_wakes_the_relay(shop: Shop, redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("henchman.outbox.relay.IDLE", 30.0)
    monkeypatch.setattr("henchman.outbox.relay.BUSY", 30.0)
    channel = "hm:outbox:wake"
    with working(shop.app) as launcher:
        [relay] = [one for one in launcher.companions if isinstance(one, Relay)]
        until(lambda: redis.pubsub_numsub(channel)[0][1] == 1, "it listens")
        shop.sell(1)
        settled(redis, 1)
        with shop.engine.begin() as connection:
            shop.app.outbox.write(connection, shop.ship, 2)
        shop.app.outbox.wake()
        settled(redis, 2)
        monkeypatch.undo()
        relay.wake()


def test_a_worker_whose_outbox_names_no_database_does_not_start(redis_url: str, tmp_path: Path) -> None:
    app = App(redis_url=redis_url, outbox="default")
    with pytest.raises(ConfigError, match="'default' names no database"):
        app.companions()
    app.outbox_databases = {"default": f"sqlite:///{tmp_path}/x.sqlite"}
    [relay] = [one for one in app.companions() if isinstance(one, Relay)]
    relay.stop()
    app.close()


def test_the_fake_takes_the_job_at_once(shop: Shop) -> None:
    with fake(shop.app) as jobs, shop.session() as session:
        shop.app.outbox.write(session, shop.ship, 1)
        shop.ship.using(outbox=True).enqueue(2)
        assert [one.args for one in jobs] == [(1,), (2,)] or [list(one.args) for one in jobs] == [[1], [2]]
        session.commit()
    assert shop.count() == 0


def test_the_command_line_shows_lag_backlog_and_what_is_refused(
    shop: Shop, redis: Redis, redis_url: str, clock: Hands
) -> None:
    redis.set("queue:broken", "no list")
    with shop.session() as session, session.begin():
        shop.app.outbox.write(session, shop.ship.using(queue="broken"), 1)
    shown = invoke(shop, redis_url, "outbox")
    assert shown.exit_code == 0
    assert "waiting: 1 row of 1" in shown.output
    assert "nobody" in shown.output
    with relaying(shop, clock) as relay:
        tick_until(relay, clock, lambda: shop.events)
        shop.sell(2)
        relay.tick()
        document = json.loads(invoke(shop, redis_url, "outbox", "--json").output)
        assert document["relay"] == redis.get(shop.lease()).decode()  # type: ignore[union-attr]
        assert (document["rows"], document["waiting"], document["lag"], document["refused_count"]) == (2, 0, 0.0, 1)
        [refused] = document["refused"]
        assert (refused["queue"], "WRONGTYPE" in refused["reason"]) == ("broken", True)
        shop.sell(3)
        document = json.loads(invoke(shop, redis_url, "outbox", "--json").output)
        assert (document["waiting"], document["duplicates"]) == (1, 0)
        assert 0 <= document["lag"] < 60
    assert "WRONGTYPE" in invoke(shop, redis_url, "outbox").output


def test_metrics_tell_how_it_stood_also_when_the_database_is_away(
    shop: Shop, relay: Relay, clock: Hands, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def figures() -> dict[str, float]:
        text = run(shop.app.connections, exposition(shop.app.keys))
        lines = [one for one in text.splitlines() if one.startswith("henchman_outbox_")]
        assert all(f'database="{shop.database.shown}"' in one for one in lines)
        return {one.partition("{")[0].removeprefix("henchman_outbox_"): float(one.rpartition(" ")[2]) for one in lines}

    assert figures() == {}
    redis.set("queue:broken", "no list")
    with shop.session() as session, session.begin():
        shop.app.outbox.write(session, shop.ship.using(queue="broken"), 1)
    shop.sell(2, 3)
    tick_until(relay, clock, lambda: shop.events)
    tick_until(relay, clock, lambda: figures().get("refused") == 1)
    told = figures()
    assert (told["waiting"], told["lag_seconds"], told["duplicates_total"]) == (0, 0, 0)
    assert 0 <= told["report_age_seconds"] < 60
    monkeypatch.setattr(shop.database, "reading", lambda: pytest.fail("a scrape asks no database"))
    [(name, text)] = redis.hgetall("hm:outboxes").items()  # type: ignore[union-attr]
    note = json.loads(text)
    redis.hset("hm:outboxes", mapping={name: json.dumps(note | {"at": note["at"] - 600}), "other": "no note"})
    assert 600 <= figures()["report_age_seconds"] < 700
    assert 0 < redis.ttl("hm:outboxes") <= 7 * 86400  # type: ignore[operator]


def test_the_command_line_counts_duplicates(shop: Shop, relay: Relay, redis_url: str) -> None:
    shop.charges = True
    shop.sell(0, 1, 2, 3)
    assert "duplicates" not in invoke(shop, redis_url, "outbox").output
    relay.tick()
    assert "duplicates: 2 rows so far" in invoke(shop, redis_url, "outbox").output
    assert json.loads(invoke(shop, redis_url, "outbox", "--json").output)["duplicates"] == 2


def test_doctor_names_what_is_wrong(shop: Shop, redis: Redis, redis_url: str, clock: Hands) -> None:
    def check() -> dict[str, str]:
        checks = json.loads(invoke(shop, redis_url, "doctor", "--json").output)["checks"]
        [found] = [one for one in checks if one["name"] == "outbox"]
        return dict(found)

    assert check()["verdict"] == "ok"
    shop.sell(1)
    assert (check()["verdict"], "nobody relays" in check()["text"]) == ("bad", True)
    with relaying(shop, clock) as relay:
        relay.tick()
        assert check()["verdict"] == "ok"
        shop.sell(2)
        with shop.database.writing() as connection:
            connection.exec_driver_sql("UPDATE henchman_outbox SET created = created - 60")
        assert (check()["verdict"], "relays" in check()["text"]) == ("warn", True)
    with shop.database.writing() as connection:
        connection.exec_driver_sql("DROP TABLE henchman_outbox_version")
    assert (check()["verdict"], check()["advice"]) == ("bad", "henchman db upgrade --outbox URL")


def test_db_upgrade_makes_the_tables(shop: Shop, redis_url: str) -> None:
    assert "up to date, schema hm_outbox_0001" in invoke(shop, redis_url, "db", "upgrade", "--outbox", shop.url).output
    with shop.database.writing() as connection:
        for name in ("", "_line", "_marker", "_version"):
            connection.exec_driver_sql(f"DROP TABLE henchman_outbox{name}")
    found = invoke(shop, redis_url, "db", "current", "--outbox", "--json")
    assert (found.exit_code, json.loads(found.output)["found"]) == (1, None)
    assert "made, schema hm_outbox_0001" in invoke(shop, redis_url, "db", "upgrade", "--outbox").output
    assert invoke(shop, redis_url, "db", "current", "--outbox", shop.url).exit_code == 0
    shop.sell(1)
    assert shop.count() == 1


def test_without_an_outbox_the_command_says_how_to_get_one(shop: Shop, redis_url: str) -> None:
    shown = invoke(shop, redis_url, "outbox", HENCHMAN_OUTBOX="")
    assert shown.exit_code == 1
    assert "no outbox is configured" in shown.output
