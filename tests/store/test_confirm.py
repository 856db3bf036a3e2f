"""``wait_replicas``: a push is answered when replicas have it, and says so when they have not. Both runners."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from henchman import App, ConfigError, ServerAway, Unconfirmed
from henchman.config import Config
from henchman.store import jobs
from henchman.store.call import Call, replicated
from henchman.store.keys import Keys
from support.fake_server import HANG, FakeServer
from support.replicas import Node, nodes
from support.runners import Maker
from support.worker import until

KEYS = Keys()
REPLICA = b"-ERR WAIT cannot be used with replica instances.\r\n"
READONLY = b"-READONLY You can't write against a read only replica.\r\n"
LOADING = b"-LOADING dataset\r\n"


def push(replicas: int = 1, timeout_ms: int = 300, *payloads: bytes) -> Call[Any]:
    call = jobs.push_many(KEYS, "a", payloads or (b"x",))
    return replicated(call, replicas, timeout_ms, lambda: ["jid"] * (len(payloads) or 1))


def schedule() -> Call[Any]:
    return replicated(jobs.schedule(KEYS, [(None, 60.0, b"x")]), 1, 4500, lambda: ["jid"])


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Node]]:
    with nodes(tmp_path_factory.mktemp("pair"), 2) as made:
        yield made


def test_a_confirmed_push_is_on_the_replica(runner: Maker, pair: list[Node]) -> None:
    master, replica = pair
    master.ask("FLUSHALL")
    one = runner(master.url)
    for count in range(1, 11):
        assert one.run(push(1, 4500))[-1] == count
        assert replica.ask("LLEN", "queue:a") == f":{count}"


def test_a_scheduled_job_is_confirmed_too_also_by_a_server_that_forgot_the_script(
    runner: Maker, pair: list[Node]
) -> None:
    master, replica = pair
    master.ask("FLUSHALL")
    master.ask("SCRIPT", "FLUSH")
    one = runner(master.url)
    for count in (1, 1):  # the same member
        one.run(schedule())
        assert replica.ask("ZCARD", "schedule") == f":{count}"


def test_too_few_replicas_is_said_with_names_and_figures(runner: Maker, pair: list[Node]) -> None:
    master = pair[0]
    master.ask("FLUSHALL")
    started = time.monotonic()
    with pytest.raises(Unconfirmed, match=r"job jid is enqueued, but 1 of the 2 replicas .* within 2 s") as caught:
        runner(master.url).run(push(2, 2000))
    assert 1.9 < time.monotonic() - started < 20
    error = caught.value
    assert (error.jids, error.wanted, error.confirmed) == (("jid",), 2, 1)
    assert not isinstance(error, ServerAway), "it must not be buffered or pushed again: it is enqueued"
    assert master.ask("LLEN", "queue:a") == ":1"


def test_after_an_unconfirmed_push_the_connection_is_in_step(runner: Maker, pair: list[Node]) -> None:
    one = runner(pair[0].url)
    pair[0].ask("FLUSHALL")
    for count in (1, 2):
        with pytest.raises(Unconfirmed):
            one.run(push(9, 1))
        assert one.run(push(0, 1)) == [0, count * 2]


@pytest.mark.parametrize(
    ("answers", "sent"),
    [
        ([LOADING, LOADING, LOADING, b":1\r\n", b":1\r\n", b":1\r\n"], ["SADD", "LPUSH", "WAIT"] * 2),
        ([READONLY, READONLY, REPLICA, b":1\r\n", b":1\r\n", b":1\r\n"], ["SADD", "LPUSH", "WAIT"] * 2),
        ([b":1\r\n", READONLY, REPLICA, b":1\r\n", b":1\r\n"], ["SADD", "LPUSH", "WAIT", "LPUSH", "WAIT"]),
        # the wait for what was refused counted replicas of something else: it goes again with it
        ([b":1\r\n", LOADING, b":1\r\n", b":1\r\n", b":1\r\n"], ["SADD", "LPUSH", "WAIT", "LPUSH", "WAIT"]),
    ],
)
def test_what_was_refused_goes_again_together_with_its_wait(
    runner: Maker, answers: list[bytes], sent: list[str]
) -> None:
    left = iter(answers)
    with FakeServer(lambda words: next(left)) as fake:
        assert runner(fake.url).run(push()) == [1, 1]
        assert [words[0].decode() for words in fake.received] == sent


def test_a_master_that_became_a_replica_behind_the_push_confirms_nothing(runner: Maker) -> None:
    left = iter([b":1\r\n", b":1\r\n", REPLICA])
    with FakeServer(lambda words: next(left)) as fake:
        with pytest.raises(Unconfirmed) as caught:
            runner(fake.url).run(push())
        assert caught.value.confirmed == 0
        assert len(fake.received) == 3, "the push happened: it is not sent again"


def test_a_wait_that_is_not_answered_is_unknown(runner: Maker) -> None:
    with FakeServer(lambda words: HANG if words[0] == b"WAIT" else b":1\r\n") as fake:
        with pytest.raises(ServerAway) as caught:
            runner(fake.url, io_timeout=0.2).run(push())
        assert caught.value.executed is None
        until(lambda: len(fake.received) >= 3, "all has been read")
        assert len(fake.received) == 3


# --- as people use it -----------------------------------------------------------------------------------------------


def app_of(node: Node, **settings: object) -> App:
    return App(redis_url=node.url, **{"wait_timeout": 0.2, **settings})


def test_enqueue_of_every_kind_is_confirmed(pair: list[Node]) -> None:
    master, replica = pair
    master.ask("FLUSHALL")
    app = app_of(master, wait_replicas=1, wait_timeout=4.5)

    @app.job(name="work", queue="a")
    def work(n: int) -> None: ...

    async def awaited() -> None:
        await work.aenqueue(3)
        await work.aenqueue_many([(4,), (5,)])
        await app.aclose()

    work.enqueue(0)
    assert replica.ask("LLEN", "queue:a") == ":1"
    work.enqueue_many((n,) for n in range(2500))
    assert replica.ask("LLEN", "queue:a") == ":2501"
    work.using(delay=60).enqueue(2)
    assert replica.ask("ZCARD", "schedule") == ":1"
    asyncio.run(awaited())
    assert replica.ask("LLEN", "queue:a") == ":2504"


def test_unconfirmed_names_the_jobs(pair: list[Node]) -> None:
    master = pair[0]
    master.ask("FLUSHALL")
    app = app_of(master, wait_replicas=2, buffer=100)

    @app.job(name="work", queue="a")
    def work(n: int) -> None: ...

    async def awaited() -> list[Unconfirmed]:
        found = []
        for push in (work.aenqueue(1), work.aenqueue_many([(1,), (2,)])):
            with pytest.raises(Unconfirmed) as caught:
                await push
            found.append(caught.value)
        await app.aclose()
        return found

    errors = asyncio.run(awaited())
    for rows in ([(1,)], [(1,), (2,), (3,)]):
        with pytest.raises(Unconfirmed) as caught:
            work.enqueue_many(rows)
        errors.append(caught.value)
    assert [len(one.jids) for one in errors] == [1, 2, 1, 3]
    with master.client() as look:
        stored = b"".join(look.lrange("queue:a", 0, -1)).decode()  # type: ignore[arg-type]
    jids = [jid for one in errors for jid in one.jids]
    assert len(set(jids)) == 7
    assert all(f'"jid":"{jid}"' in stored for jid in jids)
    assert not app.client.buffer.waiting
    assert app.job_status(jids[0]).state == "enqueued"
    app.close()


def test_the_wait_ends_before_the_limit_for_an_answer(tmp_path: Path) -> None:
    def load(**arguments: object) -> Config:
        return Config.load(start=tmp_path, env={}, arguments=arguments)

    assert load().wait_timeout == 1.0
    assert load(wait_replicas=1, io_timeout=1.0).wait_timeout == 0.5
    with pytest.raises(ConfigError, match=r"wait_timeout = 5 .* must be shorter than io_timeout, 5 s"):
        load(wait_replicas=1, wait_timeout=5.0)
    assert load(wait_timeout=5.0).wait_timeout == 5.0  # nobody waits
