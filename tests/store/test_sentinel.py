"""``sentinel://`` with real sentinels: who is asked, what is believed, how long it is waited for. Both runners."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from henchman.errors import ConfigError, ServerAway, ServerError
from henchman.kernel.text import mask_url
from henchman.store import jobs, leases
from henchman.store.call import command
from henchman.store.connection import Connections
from henchman.store.keys import Keys
from support.fake_server import HANG, FakeServer
from support.replicas import Fleet, Node, all_at_once, fleet, free_port, nodes
from support.runners import Maker, Runner
from support.store import ME

KEYS = Keys()
PUSH = jobs.push(KEYS, "a", b"x")


@pytest.fixture
def runner(runner: Maker) -> Callable[..., Runner]:
    """With time for a machine that has much else to do; a test that is about time says its own."""
    return partial(runner, connect_timeout=20.0)


@pytest.fixture(scope="module")
def ring(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A master, a replica and three sentinels, for every test that breaks none of them."""
    with fleet(tmp_path_factory.mktemp("ring")) as made:
        yield made


def sentinel(*answers: tuple[str, int] | bytes | None) -> FakeServer:
    """A sentinel that names one address after the other, then the last one for ever."""
    left = list(answers)

    def answer(words: list[bytes]) -> bytes:
        assert [word.upper() for word in words[:2]] == [b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME"]
        said = left.pop(0) if len(left) > 1 else left[0]
        if said is None:
            return b"*-1\r\n"
        if isinstance(said, bytes):
            return said
        host, port = said
        return b"*2\r\n$%d\r\n%b\r\n$%d\r\n%d\r\n" % (len(host), host.encode(), len(str(port)), port)

    return FakeServer(answer)


def url_of(*ports: int, rest: str = "/m", login: str = "") -> str:
    return f"sentinel://{login}{','.join(f'127.0.0.1:{port}' for port in ports)}{rest}"


def test_the_master_is_found_and_written_to(runner: Maker, ring: Fleet) -> None:
    one = runner(ring.url + "/2")
    assert one.run(command("SET", "k", "v")) == b"OK"
    with ring.nodes[0].client() as look:
        look.select(2)
        assert look.get("k") == b"v"
    assert one.run(leases.join(KEYS, ME, ["list"], 30_000)) == 1  # a script too


def test_a_line_for_waiting_goes_to_the_master_too(ring: Fleet) -> None:
    with closing(Connections(ring.url)) as one:
        line = one.open(2.0)
        line.send("ROLE")
        assert line.read()[0] == b"master"
        line.close()


def test_sentinels_that_are_dead_or_deaf_are_passed_over_and_remembered(runner: Maker, ring: Fleet) -> None:
    with FakeServer(lambda words: HANG) as deaf:
        one = runner(url_of(free_port(), deaf.port, ring.ports[0], rest="/mymaster"), connect_timeout=9.0)
        assert one.run(PUSH), "one that is deaf does not use up the time for all of them: that would be ServerAway"
        asked = len(deaf.received)
        one.run(command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no", again=False))
        assert one.run(command("PING")) == b"PONG"
        assert len(deaf.received) == asked == 1, "the one that answered is asked first from then on"


def test_the_address_is_asked_for_at_each_connect(runner: Maker, tmp_path: Any) -> None:
    with nodes(tmp_path, 2) as (first, second):
        second.promote()
        with sentinel(("127.0.0.1", first.port), ("127.0.0.1", second.port)) as fake:
            one = runner(url_of(fake.port))
            for node in (first, second):
                one.run(PUSH)
                assert node.ask("LLEN", "queue:a") == ":1"
                if node is first:
                    first.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
            assert len(fake.received) == 2


def test_when_another_master_is_found_idle_connections_to_the_one_before_are_dropped(
    runner: Maker, tmp_path: Any
) -> None:
    with nodes(tmp_path, 2) as (first, second):
        second.promote()
        where = ("127.0.0.1", first.port)
        with sentinel(where, where, where, ("127.0.0.1", second.port)) as fake:
            one = runner(url_of(fake.port), io_timeout=60.0)
            for count in (3, 4, 4):  # the fourth connection finds the new master
                all_at_once(one, count, first, second)
            assert "cmd=blpop" not in first.ask("CLIENT", "LIST"), "one process does not go on using two masters"
            assert second.ask("CLIENT", "LIST").count("cmd=blpop") == 4


def test_a_server_that_says_that_it_is_a_replica_is_not_believed_to_be_the_master(runner: Maker, tmp_path: Any) -> None:
    with (
        nodes(tmp_path, 2) as (master, replica),
        sentinel(("127.0.0.1", replica.port), ("127.0.0.1", replica.port), ("127.0.0.1", master.port)) as fake,
    ):
        assert runner(url_of(fake.port)).run(PUSH) == [1, 1]
        assert len(fake.received) == 3
        assert master.ask("LLEN", "queue:a") == ":1"


def test_a_push_that_a_demoted_master_refuses_reaches_the_new_one(runner: Maker, tmp_path: Any) -> None:
    with nodes(tmp_path, 2) as (first, second), sentinel(("127.0.0.1", first.port), ("127.0.0.1", second.port)) as fake:
        one = runner(url_of(fake.port))
        one.run(PUSH)
        second.promote()
        first.follow(second)
        assert one.run(PUSH) == [0, 2]  # READONLY on the open connection, then over the sentinels
        assert second.ask("LLEN", "queue:a") == ":2"


def test_while_nobody_is_master_the_time_limit_holds(runner: Maker, tmp_path: Any) -> None:
    with nodes(tmp_path, 2) as (_, replica), sentinel(("127.0.0.1", replica.port)) as fake:
        one = runner(url_of(fake.port, login=":hush@"), connect_timeout=0.5)
        replica.ask("CONFIG", "SET", "requirepass", "hush")
        started = time.monotonic()
        with pytest.raises(ServerAway, match="which says that it is a slave") as caught:
            one.run(PUSH)
        assert 0.4 < time.monotonic() - started < 15
        assert caught.value.executed is False
        assert "hush" not in str(caught.value)


def test_a_push_waits_for_the_new_master(runner: Maker, tmp_path: Any) -> None:
    with nodes(tmp_path, 2) as (first, second), sentinel(("127.0.0.1", second.port)) as fake:
        one = runner(url_of(fake.port))
        first.kill()
        timer = threading.Timer(0.5, second.promote)  # the fail-over ends while the push is waiting
        timer.start()
        assert one.run(PUSH) == [1, 1]
        timer.join()


def test_a_push_that_was_executed_by_half_when_the_master_went_is_unknown(runner: Maker) -> None:
    answers = {
        b"ROLE": b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n",
        b"SADD": b"-LOADING dataset\r\n",
        b"LPUSH": b":1\r\n",
    }
    with FakeServer(lambda words: answers[words[0]]) as server:
        for lpush, executed in ((b":1\r\n", None), (b"-LOADING dataset\r\n", False)):
            answers[b"LPUSH"] = lpush
            with sentinel(("127.0.0.1", server.port), None) as fake, pytest.raises(ServerAway) as caught:
                runner(url_of(fake.port)).run(PUSH)
            assert caught.value.executed is executed, "what is called not executed would be pushed once more"


def test_no_sentinel_there(runner: Maker) -> None:
    ports = free_port(), free_port()
    started = time.monotonic()
    with pytest.raises(ServerAway, match="no sentinel names a master") as caught:
        runner(url_of(*ports)).run(PUSH)
    assert time.monotonic() - started < 15, "waiting would help nobody"
    assert caught.value.executed is False
    assert all(f"127.0.0.1:{port}" in str(caught.value) for port in ports)


def test_a_name_that_no_sentinel_knows(runner: Maker, ring: Fleet) -> None:
    started = time.monotonic()
    with pytest.raises(ServerAway, match="knows no master 'mistress'"):
        runner(url_of(*ring.ports, rest="/mistress")).run(PUSH)
    assert time.monotonic() - started < 15


def test_one_that_is_no_sentinel_at_all(runner: Maker, ring: Fleet) -> None:
    with pytest.raises(ServerError, match="unknown command") as caught:
        runner(url_of(ring.nodes[0].port)).run(PUSH)
    assert not isinstance(caught.value, ServerAway)


def test_passwords_of_server_and_sentinels_are_two(runner: Maker, tmp_path: Any) -> None:
    (tmp_path / "s").mkdir()
    with nodes(tmp_path / "n", 1) as (master,):
        master.ask("CONFIG", "SET", "requirepass", "right")
        node = Node(tmp_path / "guard")  # a server with a password stands in for a sentinel's login
        node.start()
        node.ask("CONFIG", "SET", "requirepass", "guard")
        try:
            with pytest.raises(ServerError, match="refused the login") as caught:
                runner(url_of(node.port, login=":right@", rest="/m?sentinel_password=wrong")).run(PUSH)
            assert "wrong" not in str(caught.value)
            with pytest.raises(ServerError, match="unknown command"):  # it was let in
                runner(url_of(node.port, login=":right@", rest="/m?sentinel_password=guard")).run(PUSH)
        finally:
            node.stop()
        with sentinel(("127.0.0.1", master.port)) as fake:
            assert runner(url_of(fake.port, login=":right@")).run(PUSH) == [1, 1]
            with pytest.raises(ServerError, match="refused the login") as caught:
                runner(url_of(fake.port, login=":hush@")).run(PUSH)
            assert "hush" not in str(caught.value)
            assert fake.received[0][0].upper() == b"SENTINEL", "the server's password is not told to the sentinels"


def test_a_user_who_may_not_ask_for_the_role_is_served(runner: Maker, tmp_path: Any) -> None:
    with nodes(tmp_path, 1) as (master,), sentinel(("127.0.0.1", master.port)) as fake:
        master.ask("ACL", "SETUSER", "worker", "on", ">pw", "~*", "&*", "+@all", "-role")
        assert runner(url_of(fake.port, login="worker:pw@")).run(PUSH) == [1, 1]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("sentinel://:hush@h1,h2", "does not name the master"),
        ("sentinel://:hush@h1,h2/", "does not name the master"),
        ("sentinel://:hush@/m", "'' is not the address of a sentinel"),
        ("sentinel://:hush@h1,,h2/m", "'' is not the address of a sentinel"),
        ("sentinel://:hush@h1:port/m", "'h1:port' is not the address"),
        ("sentinel://:hush@h1:99999/m", "'h1:99999' is not the address"),
        ("sentinel://:hush@[::1/m", "cannot be read"),
        ("sentinel://:hush@h1/m/zero", "number of the database"),
        ("sentinel://:hush@h1/m/0/1", "number of the database"),
        ("sentinel://h1/m?sentinel_pasword=hush", "there is no sentinel_pasword"),
        ("sentinel://:hush@h1/m?ssl=perhaps", "ssl must be true or false"),
        ("sentinel://:hush@h1/m?protocol=3", "leave protocol out"),
        ("sentinel://:hush@h1/m?colour=red", "colour"),
    ],
)
def test_addresses_that_are_none(runner: Maker, url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        runner(url)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "sentinel://:hush@h1:26379,h2:26379,h3/mymaster/2?sentinel_password=hush",
        "sentinel://me:hush@h1,h2/m?sentinel_username=a&sentinel_password=hush&ssl=true&sentinel_ssl=yes",
        "sentinel://[::1]:26379,[fe80::1]/m?sentinel_ssl=true&ssl_cert_reqs=none",
        "sentinel://h1/m?socket_timeout=2",
    ],
)
def test_addresses_that_are_ones(runner: Maker, url: str) -> None:
    one = runner(url)
    assert "hush" not in f"{mask_url(url)} {one!r}"
