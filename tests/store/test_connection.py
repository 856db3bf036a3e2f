"""Both runners against servers that die, forget, refuse, or never answer: what is sent again, and what never."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from henchman.config.settings import HELP
from henchman.config.sources import SCHEMES
from henchman.errors import ConfigError, ServerAway, ServerError
from henchman.kernel.text import mask_url
from henchman.store import jobs, leases
from henchman.store.call import command, commands
from henchman.store.connection import check_url
from henchman.store.keys import Keys
from support.fake_server import CLOSE, HANG, FakeServer
from support.replicas import Name, all_at_once, nodes
from support.runners import Maker
from support.server import running_server
from support.store import ME
from support.worker import until

KEYS = Keys()
PUSH = jobs.push(KEYS, "a", b"x")
READ = command("PING")


def test_one_command_and_several(runner: Maker, redis_url: str) -> None:
    one = runner(redis_url)
    assert one.run(command("SET", "k", b"\x00\xff")) == b"OK"
    assert one.run(commands(("GET", "k"), ("STRLEN", "k"), ("INCRBYFLOAT", "f", 1e-7))) == [
        b"\x00\xff",
        2,
        b"0.0000001",
    ]
    assert one.run(commands(("GET", "k"))) == [b"\x00\xff"], "also a single one answers with a list"
    assert one.run(commands(("STRLEN", "k"), decode=sum)) == 2


def test_a_refusal_leaves_the_connection_in_step(runner: Maker, redis_url: str) -> None:
    one = runner(redis_url)
    one.run(command("SET", "text", "x"))
    connected = one.run(command("CLIENT", "LIST")).count(b"\n")  # ours, and what others left open
    for call in (command("LPOP", "text"), commands(("GET", "text"), ("LPOP", "text"), ("GET", "text"))):
        with pytest.raises(ServerError, match="WRONGTYPE") as caught:
            one.run(call)
        assert not isinstance(caught.value, ServerAway)
    assert one.run(command("GET", "text")) == b"x"
    assert one.run(command("CLIENT", "LIST")).count(b"\n") <= connected, "ours was not thrown away"


def test_an_error_inside_of_a_transaction_is_an_error(runner: Maker, redis_url: str) -> None:
    one = runner(redis_url)
    one.run(command("SET", KEYS.signals(ME), "text"))
    with pytest.raises(ServerError, match="WRONGTYPE"):
        one.run(leases.beat(KEYS, ME, {"info": "{}"}, {}, old_work=True))


def test_a_transaction_that_is_refused_says_why(runner: Maker, redis_url: str) -> None:
    with pytest.raises(ServerError, match="wrong number of arguments"):
        runner(redis_url).run(commands(("MULTI",), ("GET",), ("EXEC",)))


def test_scripts_that_the_server_forgot(runner: Maker, redis_url: str) -> None:
    one = runner(redis_url)
    join = leases.join(KEYS, ME, ["list"], 30_000)
    for _ in range(3):
        assert one.run(join) == 1
        one.run(command("SCRIPT", "FLUSH"))
    assert one.run(jobs.schedule(KEYS, [(1.0, 0.0, b"x")])) == 1  # also a call that is never sent again


def came(fake: FakeServer, *words: list[bytes]) -> None:
    """All this was sent, and nothing else; who gave up early may have been quicker than the reader."""
    until(lambda: len(fake.received) >= len(words), "all has been read")
    assert fake.received == list(words)


def test_nobody_there(runner: Maker) -> None:
    with FakeServer(lambda words: CLOSE) as fake:
        url = fake.url
    one = runner(url, connect_timeout=1.0)
    started = time.monotonic()
    with pytest.raises(ServerAway, match=r"cannot be reached: .*; henchman doctor shows where") as caught:
        one.run(PUSH)
    assert caught.value.executed is False
    assert time.monotonic() - started < 10


@pytest.mark.alone("it measures how long a push takes to give up")
def test_a_push_that_is_not_answered_is_sent_once(runner: Maker) -> None:
    with FakeServer(lambda words: HANG) as fake:
        one = runner(fake.url, io_timeout=0.3)
        started = time.monotonic()
        with pytest.raises(ServerAway, match="did not answer SADD") as caught:
            one.run(PUSH)
        assert time.monotonic() - started < 4.5
        assert caught.value.executed is None
        came(fake, [b"SADD", b"queues", b"a"], [b"LPUSH", b"queue:a", b"x"])


@pytest.mark.parametrize("what", [HANG, CLOSE])
def test_a_read_that_is_not_answered_is_sent_twice(runner: Maker, what: bytes) -> None:
    with FakeServer(lambda words: what) as fake:
        one = runner(fake.url, io_timeout=0.2)
        with pytest.raises(ServerAway) as caught:
            one.run(READ)
        assert caught.value.executed is None
        came(fake, [b"PING"], [b"PING"])


@pytest.mark.parametrize("refusal", [b"-LOADING dataset\r\n", b"-OOM command not allowed\r\n", b"-WRONGTYPE\r\n", None])
def test_what_is_refused_the_second_time_is_unknown(runner: Maker, refusal: bytes | None) -> None:
    """The first sending may have been executed before its answer was lost: a caller who takes the refusal for the
    answer would push once more, or count what runs as refused."""
    answers = iter([CLOSE, *[refusal or b"-LOADING dataset\r\n"] * (1000 if refusal else 1)])
    with FakeServer(lambda words: next(answers, CLOSE)) as fake:
        with pytest.raises(ServerAway) as caught:
            runner(fake.url, io_timeout=0.3).run(READ)
        assert caught.value.executed is None
        assert len(fake.received) >= 2


def test_a_push_that_is_cut_off_is_unknown(runner: Maker) -> None:
    with FakeServer(lambda words: CLOSE if words[0] == b"LPUSH" else b":1\r\n") as fake:
        with pytest.raises(ServerAway) as caught:
            runner(fake.url).run(PUSH)
        assert caught.value.executed is None
        assert len(fake.received) == 2


def test_a_push_in_half_an_answer_is_unknown(runner: Maker) -> None:
    with FakeServer(lambda words: b":1\r\n" if words[0] == b"SADD" else HANG) as fake:
        with pytest.raises(ServerAway) as caught:
            runner(fake.url, io_timeout=0.2).run(PUSH)
        assert caught.value.executed is None
        came(fake, [b"SADD", b"queues", b"a"], [b"LPUSH", b"queue:a", b"x"])


def test_late_answers_are_nobody_elses(runner: Maker) -> None:
    with FakeServer(lambda words: HANG if words[1] == b"a" else b"+second\r\n") as fake:
        one = runner(fake.url, io_timeout=2.0)
        with pytest.raises(ServerAway):
            one.run(command("GET", "a", again=False))
        assert one.run(command("GET", "b", again=False)) == b"second"
        assert fake.connections == 2


@pytest.mark.parametrize(
    "refusal",
    [
        b"-LOADING Redis is loading the dataset in memory\r\n",
        b"-READONLY You can't write against a read only replica.\r\n",
        b"-MASTERDOWN Link with MASTER is down\r\n",
        b"-MISCONF Redis is configured to save RDB snapshots\r\n",
        b"-CLUSTERDOWN Hash slot not served\r\n",
        b"-TRYAGAIN later\r\n",
        b"-BUSY Redis is busy running a script\r\n",
        b"-NOREPLICAS Not enough good replicas to write.\r\n",
        b"-ERR max number of clients reached\r\n",
    ],
)
def test_a_push_that_was_refused_unexecuted_is_sent_again(runner: Maker, refusal: bytes) -> None:
    answers = iter([refusal, refusal, b":1\r\n", b":1\r\n"])
    with FakeServer(lambda words: next(answers)) as fake:
        assert runner(fake.url).run(PUSH) == [1, 1]
        assert [words[0] for words in fake.received] == [b"SADD", b"LPUSH"] * 2


@pytest.mark.parametrize("refusal", [b"-LOADING dataset\r\n", b"-READONLY replica\r\n", b"-MISCONF disk\r\n"])
def test_a_refusal_that_lasts_is_a_server_that_is_away(runner: Maker, refusal: bytes) -> None:
    with FakeServer(lambda words: refusal) as fake:
        one = runner(fake.url, io_timeout=0.5)
        for call in (PUSH, READ):
            with pytest.raises(ServerAway, match="refuses") as caught:
                one.run(call)
            assert caught.value.executed is False
            assert refusal.split()[0].decode().lstrip("-") in str(caught.value)


def test_of_a_push_that_was_refused_by_half_the_other_half_is_not_sent_again(runner: Maker) -> None:
    answers = iter([b"-LOADING dataset\r\n", b":1\r\n", b":7\r\n"])
    with FakeServer(lambda words: next(answers)) as fake:
        assert runner(fake.url).run(PUSH) == [7, 1]
        assert [words[0] for words in fake.received] == [b"SADD", b"LPUSH", b"SADD"]


def test_after_readonly_no_idle_connection_reads_from_the_old_master(runner: Maker, tmp_path: Path) -> None:
    with nodes(tmp_path, 2) as (old, new), Name(old.port) as name:
        one = runner(name.url, io_timeout=60.0)
        all_at_once(one, 4, old)
        assert old.ask("CLIENT", "LIST").count("cmd=blpop") == 4
        new.promote()
        old.follow(new)
        name.move(new.port)
        assert one.run(PUSH) == [1, 1]
        until(lambda: "cmd=blpop" not in old.ask("CLIENT", "LIST"), "nobody is left at the old master")


def test_a_transaction_that_was_refused_is_sent_again_as_a_whole(runner: Maker) -> None:
    loading, abort = b"-LOADING dataset\r\n", b"-EXECABORT Transaction discarded because of previous errors.\r\n"
    answers = iter([b"+OK\r\n", loading, abort, b"+OK\r\n", b"+QUEUED\r\n", b"*1\r\n:5\r\n"])
    with FakeServer(lambda words: next(answers)) as fake:
        call = commands(("MULTI",), ("INCR", "n"), ("EXEC",), decode=lambda replies: replies[-1], again=False)
        assert runner(fake.url).run(call) == [5]
        assert [words[0] for words in fake.received] == [b"MULTI", b"INCR", b"EXEC"] * 2


def test_a_refusal_for_good_is_not_sent_again(runner: Maker) -> None:
    with FakeServer(lambda words: b"-NOPERM no\r\n") as fake:
        with pytest.raises(ServerError, match="no") as caught:
            runner(fake.url).run(PUSH)
        assert not isinstance(caught.value, ServerAway)
        assert len(fake.received) == 2


OOM = b"-OOM command not allowed when used memory > 'maxmemory'.\r\n"


@pytest.mark.parametrize(
    ("answers", "sent"),
    [
        ((OOM, b":1\r\n", b":1\r\n"), [b"SADD", b"LPUSH", b"SADD"]),
        ((OOM, b":1\r\n", OOM, b":1\r\n"), [b"SADD", b"LPUSH", b"SADD", b"SADD"]),
    ],
)
def test_a_memory_that_has_room_again_between_two_commands_of_a_push(
    runner: Maker, answers: tuple[bytes, ...], sent: list[bytes]
) -> None:
    said = iter(answers)
    with FakeServer(lambda words: next(said)) as fake:
        assert runner(fake.url).run(PUSH) == [1, 1]
        assert [words[0] for words in fake.received] == sent


@pytest.mark.parametrize("answers", [(OOM, OOM), (b":1\r\n", OOM), (b":1\r\n", b"-NOPERM no\r\n")])
def test_a_push_whose_job_was_refused_is_told_so_at_once(runner: Maker, answers: tuple[bytes, ...]) -> None:
    said = iter(answers)
    with FakeServer(lambda words: next(said)) as fake:
        with pytest.raises(ServerError) as caught:
            runner(fake.url).run(PUSH)
        assert not isinstance(caught.value, ServerAway)
        assert [words[0] for words in fake.received] == [b"SADD", b"LPUSH"]


@pytest.mark.parametrize("refusal", [b"-NOPERM no\r\n", b"-WRONGTYPE of another kind\r\n"])
def test_a_push_that_was_executed_in_part_is_not_told_as_refused(runner: Maker, refusal: bytes) -> None:
    said = iter([refusal, b":1\r\n"])
    with FakeServer(lambda words: next(said)) as fake:
        with pytest.raises(ServerAway, match=r"no|kind") as caught:
            runner(fake.url).run(PUSH)
        assert caught.value.executed is None
        assert [words[0] for words in fake.received] == [b"SADD", b"LPUSH"]


@pytest.mark.parametrize("how", ["restart", "kick"])
def test_a_stale_connection_is_noticed_before_a_push(runner: Maker, how: str) -> None:
    with running_server() as server:
        one = runner(server.url)
        one.run(READ)
        if how == "restart":
            server.kill()
            server.start()
        else:
            server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert one.run(PUSH) == [1, 1]


def test_while_the_server_is_dead(runner: Maker) -> None:
    with running_server() as server:
        one = runner(server.url)
        one.run(READ)
        server.kill()
        with pytest.raises(ServerAway) as caught:
            one.run(PUSH)
        assert caught.value.executed is False
        server.start()
        assert one.run(PUSH) == [1, 1]


def test_revive_brings_the_server_back(runner: Maker) -> None:
    with running_server() as server:
        server.kill()
        revived = []

        def revive() -> bool:
            server.start()
            revived.append(1)
            return True

        assert runner(server.url, revive=revive).run(PUSH) == [1, 1]
        assert revived == [1]


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("redis://:hush@127.0.0.1:1", "127.0.0.1:1"),
        ("redis://me:hush@nowhere.invalid:6379", "nowhere.invalid"),
        ("unix://:hush@/nowhere/s", "/nowhere/s"),
        ("redis://127.0.0.1:1?password=hush", "127.0.0.1:1"),
    ],
)
def test_a_password_is_never_told(runner: Maker, url: str, said: str) -> None:
    one = runner(url, connect_timeout=1.0)
    with pytest.raises(ServerAway) as caught:
        one.run(READ)
    assert said in str(caught.value)
    assert "hush" not in f"{caught.value} {caught.value!r} {one!r}"


def test_a_wrong_password_says_so_and_does_not_tell_it(runner: Maker) -> None:
    with running_server() as server:
        assert server.ask("CONFIG", "SET", "requirepass", "right") == "+OK"
        wrong = server.url.replace("unix://", "unix://:hush@")
        for url, said in ((wrong, "refused the login"), (server.url, "Authentication required")):
            with pytest.raises(ServerError, match=said) as caught:
                runner(url).run(PUSH)
            assert not isinstance(caught.value, ServerAway)
            assert "hush" not in str(caught.value)
            assert mask_url(url) in str(caught.value), "it says which server"
        assert runner(wrong.replace("hush", "right")).run(READ) == b"PONG"


def test_a_user_who_may_not_push_is_told_where(runner: Maker) -> None:
    with running_server() as server:
        assert server.ask("ACL", "SETUSER", "reader", "on", ">hush", "+@read", "+@connection", "~*") == "+OK"
        url = server.url.replace("unix://", "unix://reader:hush@")
        with pytest.raises(ServerError, match="does not allow this user everything: SADD") as caught:
            runner(url).run(PUSH)
        assert str(caught.value).startswith(mask_url(url))
        assert "hush" not in str(caught.value)


def test_every_kind_of_address_that_the_setting_offers_can_be_connected_to() -> None:
    rest = {"unix": "/tmp/s", "sentinel": "host/name"}  # noqa: S108 - nothing is opened
    for scheme in SCHEMES:
        url = f"{scheme}://{rest.get(scheme, 'host')}"
        assert check_url(url) == url, "read, and its arguments are taken"
    assert sorted(re.findall(r"(\w+)://", HELP["redis_url"])) == sorted(SCHEMES)


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://:hush@h", "must begin with redis://"),
        ("cluster://:hush@h", "must begin with redis://"),
        ("redis://:hush@h:port", "cannot be read"),
        ("redis://:hush@h?socket_timeout=soon", "cannot be read"),
        ("redis://:hush@h?protocol=3", "leave protocol out"),
        ("redis://:hush@h?decode_responses=1", "leave decode_responses out"),
        ("redis://:hush@h?colour=red", "colour"),
    ],
)
def test_addresses_that_are_none(runner: Maker, url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        runner(url)
    assert "hush" not in str(caught.value)


@pytest.mark.alone("it measures how long a push takes to give up")
def test_an_address_may_say_its_own_limits(runner: Maker) -> None:
    with FakeServer(lambda words: HANG) as fake:
        one = runner(f"{fake.url}?socket_timeout=0.2&socket_connect_timeout=1")
        started = time.monotonic()
        with pytest.raises(ServerAway):
            one.run(PUSH)
        assert time.monotonic() - started < 4.5
