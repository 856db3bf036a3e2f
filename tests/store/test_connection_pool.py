"""The pools: under load, in forked children, in several event loops, over TLS."""

from __future__ import annotations

import asyncio
import os
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from henchman.errors import ServerAway
from henchman.store import jobs, leases
from henchman.store.aconnection import AsyncConnections
from henchman.store.call import command
from henchman.store.connection import Connections
from henchman.store.keys import Keys
from support.fake_server import HANG, FakeServer
from support.store import ME

KEYS = Keys()


def in_threads(count: int, body: Callable[[int], None]) -> None:
    """Run ``body`` in threads; the first error is raised here."""
    problems: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            body(number)
        except BaseException as error:
            problems.append(error)

    threads = [threading.Thread(target=guarded, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if problems:
        raise problems[0]


@pytest.fixture
def pool(redis_url: str) -> Iterator[Connections]:
    made = Connections(redis_url)
    yield made
    made.close()


def test_each_thread_gets_its_own_answers(pool: Connections) -> None:
    def body(number: int) -> None:
        for step in range(100):
            assert pool.run(command("ECHO", f"{number}/{step}")) == f"{number}/{step}".encode()

    before = pool.run(command("CLIENT", "LIST")).count(b"\n")  # ours, and those that earlier tests just closed
    in_threads(8, body)
    assert pool.run(command("CLIENT", "LIST")).count(b"\n") <= before + 8


def test_scripts_are_forgotten_under_load(pool: Connections) -> None:
    done = threading.Event()

    def forget() -> None:
        while not done.is_set():
            pool.run(command("SCRIPT", "FLUSH"))

    def push(number: int) -> None:
        for step in range(100):
            pool.run(jobs.schedule(KEYS, [(1.0, 0.0, b"%d/%d" % (number, step))]))

    forgetting = threading.Thread(target=forget)
    forgetting.start()
    try:
        in_threads(4, push)
    finally:
        done.set()
        forgetting.join()
    assert pool.run(command("ZCARD", "schedule")) == 400


def test_connections_are_killed_under_load(pool: Connections) -> None:
    done = threading.Event()
    sure, unsure = [0] * 4, [0] * 4

    def kill() -> None:
        while not done.wait(0.002):  # a breath between two kills, else nobody gets anywhere
            pool.run(command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"))

    def push(number: int) -> None:
        for step in range(200):
            try:
                pool.run(jobs.push(KEYS, "a", b"%d/%d" % (number, step)))
            except ServerAway:
                unsure[number] += 1
            else:
                sure[number] += 1

    killing = threading.Thread(target=kill)
    killing.start()
    try:
        in_threads(4, push)
    finally:
        done.set()
        killing.join()
    payloads = pool.run(command("LRANGE", "queue:a", 0, -1))
    assert len(payloads) == len(set(payloads))  # none came twice
    assert sum(sure) <= len(payloads) <= sum(sure) + sum(unsure) == 800


def test_a_forked_child_does_not_use_its_parents_connections(pool: Connections) -> None:
    mine = pool.run(command("CLIENT", "ID"))
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writer, b"%d" % pool.run(command("CLIENT", "ID")))
            pool.close()
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        other = int(told.read())
    os.waitpid(child, 0)

    assert other != mine
    assert pool.run(command("CLIENT", "ID")) == mine  # the child closed nothing of ours


def test_a_child_that_closes_first_cuts_nothing_off(pool: Connections) -> None:
    mine = pool.run(command("CLIENT", "ID"))
    child = os.fork()
    if child == 0:
        try:
            pool.close()
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert pool.run(command("CLIENT", "ID")) == mine


def test_closed_is_not_the_end(pool: Connections) -> None:
    first = pool.run(command("CLIENT", "ID"))
    pool.close()
    pool.close()
    assert pool.run(command("CLIENT", "ID")) != first


def test_a_line_belongs_to_its_user(pool: Connections) -> None:
    line = pool.open(io_timeout=2.0)
    line.send("ECHO", "mine")
    assert line.read() == b"mine"
    assert not line.readable()
    line.send("BLPOP", "nothing", 0)
    with pytest.raises(ServerAway):
        line.read()
    line.close()
    line.close()


def test_each_event_loop_has_its_own_pool(redis_url: str) -> None:
    pools = AsyncConnections(redis_url)

    async def ids() -> set[int]:
        found = {await pools.run(command("CLIENT", "ID")) for _ in range(3)}
        await pools.close()
        return found

    first, second = asyncio.run(ids()), asyncio.run(ids())
    assert len(first) == len(second) == 1
    assert first != second


def test_loops_in_threads_do_not_mix(redis_url: str) -> None:
    pools = AsyncConnections(redis_url)

    async def talk(number: int) -> None:
        for step in range(30):
            texts = [f"{number}/{step}/{n}" for n in range(5)]
            said = await asyncio.gather(*(pools.run(command("ECHO", text)) for text in texts))
            assert said == [text.encode() for text in texts]
        await pools.close()

    in_threads(4, lambda number: asyncio.run(talk(number)))


def test_a_cancelled_task_poisons_nobody(redis_url: str) -> None:
    pools = AsyncConnections(redis_url)

    async def scene() -> None:
        for _ in range(50):
            waiting = asyncio.create_task(pools.run(command("BLPOP", "nothing", 0)))
            while b"cmd=blpop" not in await pools.run(command("CLIENT", "LIST")):  # noqa: ASYNC110 - a server's fact
                await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
            assert await pools.run(command("ECHO", "mine")) == b"mine"
            assert waiting.cancelled()
        await pools.close()

    asyncio.run(scene())


def test_a_task_cancelled_while_it_connects_leaves_nothing_open(redis_url: str) -> None:
    pools = AsyncConnections(redis_url)

    async def scene() -> None:
        for breaths in range(12):
            task = asyncio.create_task(pools.run(command("ECHO", "x")))
            for _ in range(breaths):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
        assert await pools.run(command("ECHO", "mine")) == b"mine"
        await pools.close()

    asyncio.run(scene())  # a connection left open is a ResourceWarning, and that is an error here


def test_a_time_limit_of_the_caller_holds(redis_url: str) -> None:
    async def scene() -> None:
        pools = AsyncConnections(fake.url)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await pools.run(command("PING"))
        await pools.close()

    with FakeServer(lambda words: HANG) as fake:
        asyncio.run(scene())


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A file with a key and a certificate for 127.0.0.1, signed by itself."""
    pem = tmp_path / "both.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    )
    subprocess.run([*command.split(), "-keyout", pem, "-out", tmp_path / "cert"], check=True, capture_output=True)
    pem.write_bytes(pem.read_bytes() + (tmp_path / "cert").read_bytes())
    return pem


def test_tls(certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    async def scene(url: str) -> list[bytes]:
        pools = AsyncConnections(url, connect_timeout=20)
        said = [await pools.run(command("PING")) for _ in range(3)]
        await pools.close()
        return said

    with FakeServer(lambda words: b"+PONG\r\n", tls=context) as fake:
        trusting = f"{fake.url}?ssl_ca_certs={certificate}"
        pool = Connections(trusting, connect_timeout=20)
        assert [pool.run(command("PING")) for _ in range(3)] == [b"PONG"] * 3
        pool.close()
        assert fake.connections == 1  # what TLS says beside the answers does not look like a stale connection
        assert asyncio.run(scene(trusting)) == [b"PONG"] * 3
        assert fake.connections == 2

        with pytest.raises(ServerAway, match="certificate") as caught:
            Connections(fake.url, connect_timeout=20).run(command("PING"))
        assert caught.value.executed is False
        with pytest.raises(ServerAway, match="certificate"):
            asyncio.run(scene(fake.url))


def test_a_lease_is_joined_from_both_worlds(redis_url: str, pool: Connections) -> None:
    async def scene() -> int:
        pools = AsyncConnections(redis_url)
        joined = await pools.run(leases.join(KEYS, ME, ["x"], 30_000))
        await pools.close()
        return joined

    assert asyncio.run(scene()) == pool.run(leases.renew(KEYS, ME, 30_000)) == 1
