"""Exactly one job for each committed row: whatever step a relay is killed or frozen at, whatever answer is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

import henchman
from henchman.errors import ServerError
from henchman.kernel import failpoints
from henchman.outbox.relay import Relay
from henchman.store.call import load
from support.databases import DatabaseServer
from support.outbox import CONFIRMED, Hands, Shop, relaying, tick_until
from support.server import PrivateServer, running_server
from support.worker import looker, until

pytestmark = pytest.mark.scale("a relay is killed and frozen at each of its calls, on each kind of database")
PATHS = [str(Path(henchman.__file__).parents[1]), str(Path(__file__).parents[1])]
STEPS = ["outbox look", "outbox_push", "GET", "outbox delete", "outbox_forget", "SSCAN"]
WHERE = ["before", "after"]
OTHERS = ("sqlite", "mariadb")  # the steps are the same there: only those that differ by database
KILLED = [("postgresql", step) for step in STEPS] + [
    (name, step) for name in OTHERS for step in ("outbox_push", "outbox delete")
]
FROZEN = [("postgresql", step) for step in STEPS[:-1]] + [(name, "outbox delete") for name in OTHERS]


@pytest.fixture
def shop(redis_url: str, outbox_url: str) -> Iterator[Shop]:
    """One that charges three orders together."""
    made = Shop(redis_url, outbox_url, charges=True)
    yield made
    made.close()


@contextmanager
def child(shop: Shop, redis: Redis, redis_url: str, fault: str) -> Iterator[subprocess.Popen[str]]:
    """A relay as a process, with a fault point open."""
    for script in ("lead", "outbox_push", "outbox_forget"):
        redis.script_load(load(script).text)  # so that each call passes its points once, not also with the text
    env = os.environ | {"HENCHMAN_TEST_FAULTS": fault, "PYTHONPATH": os.pathsep.join(PATHS)}
    command = [sys.executable, "-m", "support.relay_child", redis_url, shop.url]
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate(timeout=60)


def drain(shop: Shop, redis: Redis, clock: Hands) -> None:
    """Another relay finishes what was begun, and sweeps."""
    redis.delete(shop.lease())  # it would last another 10 s
    with relaying(shop, clock) as relay:
        tick_until(relay, clock, lambda: not shop.count() and not redis.exists(shop.sent()), 600)
    shop.judge(redis)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize(("outbox_url", "step"), KILLED, indirect=["outbox_url"])
def test_a_relay_is_killed(shop: Shop, redis: Redis, redis_url: str, clock: Hands, step: str, where: str) -> None:
    shop.sell(*range(30))
    with child(shop, redis, redis_url, f"kill@{step}:{where}") as process:
        assert process.wait(120) == -signal.SIGKILL
    shop.sell(*range(30, 40))
    drain(shop, redis, clock)


def is_stopped(process: subprocess.Popen[str]) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.mark.parametrize(("outbox_url", "step"), FROZEN, indirect=["outbox_url"])
def test_a_relay_is_frozen_past_its_lease_and_wakes_up(
    shop: Shop, redis: Redis, redis_url: str, clock: Hands, step: str
) -> None:
    """It wakes while another one has read new rows and has not pushed them."""
    shop.sell(*range(20))
    with child(shop, redis, redis_url, f"stop@{step}:before") as frozen:
        until(lambda: is_stopped(frozen), "it is frozen", 120)
        redis.delete(shop.lease())
        with relaying(shop, clock) as other:
            other.tick()
            shop.sell(*range(20, 30))
            clock.now += 1.0
            steps = other.steps()
            while next(steps) != "push":
                pass
            other._renew_at = clock.now + 60
            frozen.send_signal(signal.SIGCONT)
            until(lambda: not is_stopped(frozen), "it has woken up")
            list(steps)
            tick_until(other, clock, lambda: not shop.count())
        assert frozen.wait(120) == 0, "it led again, and ended because nothing was left"
    drain(shop, redis, clock)


@pytest.mark.parametrize("fault", ["outbox_push", "outbox_forget", "GET", "outbox look", "outbox delete", "SSCAN"])
def test_an_answer_is_lost(shop: Shop, relay: Relay, redis: Redis, clock: Hands, fault: str) -> None:
    """Of the COMMIT of a deletion, too: what is unknown is done again."""
    shop.sell(1, 2)
    relay.tick()
    shop.sell(3)
    failpoints.open_points(",".join(f"drop@{fault}:{where}#{number}" for where in WHERE for number in (1, 3)))
    try:
        for _ in range(300):
            try:
                relay.tick()
            except ServerError:
                relay._hold_until = 0.0
            clock.now += 0.5
    finally:
        failpoints.close()
    drain(shop, redis, clock)


def test_a_database_that_is_killed_gets_nothing_twice(
    redis_url: str, redis: Redis, database_server: DatabaseServer, clock: Hands
) -> None:
    shop = Shop(redis_url, database_server.url)
    try:
        with relaying(shop, clock) as relay:
            shop.sell(*range(5))
            relay.tick()
            database_server.kill()
            clock.now += CONFIRMED
            for _ in range(4):
                assert relay.tick() > 0
                clock.now += 20
            assert [name for name, _ in shop.events] == ["outbox_away"]
            assert not relay.leads, "another process may reach the database"
            shop.database.close()
            database_server.start()
            shop.sell(*range(5, 8))
            clock.now += 20
            tick_until(relay, clock, lambda: not shop.count())
            assert [name for name, _ in shop.events] == ["outbox_away", "outbox_back"]
        drain(shop, redis, clock)
    finally:
        shop.close()


def append_only_file(server: PrivateServer) -> Path:
    files = [one for one in server.folder.rglob("appendonly.aof*") if one.is_file()]
    return next((one for one in files if "incr" in one.name), files[0])


@pytest.mark.parametrize("forgotten", ["push", "delete"])
def test_a_server_that_forgets_its_last_second_loses_nothing(outbox_url: str, clock: Hands, forgotten: str) -> None:
    """Its append-only file is cut off where it stood before the push, or between the push and what came after."""
    with running_server("--appendfsync", "always", appendonly=True) as server, looker(server.url) as redis:
        shop = Shop(server.url, outbox_url, charges=True)
        try:
            with relaying(shop, clock) as relay:
                shop.sell(*range(10))
                relay.tick()
                clock.now += CONFIRMED
                size = append_only_file(server).stat().st_size
                relay.tick()
                assert shop.count() == 0
                if forgotten == "push":
                    size = append_only_file(server).stat().st_size
                shop.sell(*range(10, 20))
                relay.tick()
                server.kill()
                with append_only_file(server).open("r+b") as file:
                    file.truncate(size)
                server.start()
                clock.now += CONFIRMED
                for _ in range(5):
                    with_a_server(relay)
                    clock.now += 1.0
            drain(shop, redis, clock)
        finally:
            shop.close()


def with_a_server(relay: Relay) -> Any:
    """A round, in which it may notice that its connections are broken."""
    try:
        return relay.tick()
    except ServerError:
        return relay.tick()
