"""What doctor finds, on servers that are well, ill and secretive."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from henchman.errors import ServerAway
from henchman.inspector.doctor import Check, examine, unserved
from henchman.store import ordered
from henchman.store.call import Call, Together
from henchman.store.connection import Connections
from henchman.store.keys import Keys
from support.server import running_server
from support.store import ME, Store


def found(store: Store) -> dict[str, Check]:
    return {one.name: one for one in examine(store.connections, store.keys)}


class Answering:
    """A runner that answers some commands as told and asks the server for the rest."""

    def __init__(self, store: Store, **answers: Any) -> None:
        self._store = store
        self._answers = answers

    def run(self, call: Call[Any]) -> Any:
        if isinstance(call, Together):
            return [self.run(one) for one in call.calls]
        if (name := call.name.partition(" ")[0]) in self._answers:
            answer = self._answers[name]
            return call.decode(answer() if callable(answer) else answer)
        return self._store.run(call)


def said(store: Store, **answers: Any) -> dict[str, Check]:
    return {one.name: one for one in examine(Answering(store, **answers), store.keys)}


def test_a_server_that_is_well(store: Store) -> None:
    with running_server(appendonly=True) as server:
        well = Store(server.url)
        checks = found(well)
        assert {one.name for one in checks.values() if one.verdict != "ok"} == set(), checks
        assert "fsync everysec" in checks["persistence"].text
        well.connections.close()


def test_a_server_that_is_ill() -> None:
    with running_server("--maxmemory-policy", "allkeys-lru") as server:
        store = Store(server.url)
        store.ask("LPUSH", store.keys.broken, "[red]an effect\x1b that failed")
        store.ask("SADD", store.keys.paused, "mail")
        store.push("mail", b"1", b"2")
        store.join("mail", lease_ms=60_000)
        store.fetch("mail")
        store.ask("DEL", store.keys.lease(ME))
        checks = found(store)
        bad = {name for name, one in checks.items() if one.verdict == "bad"}
        warned = {name for name, one in checks.items() if one.verdict == "warn"}
        assert bad == {"eviction policy", "persistence", "broken effects"}
        assert warned == {"pauses", "lost processes"}
        assert all(one.advice for one in checks.values() if one.verdict != "ok")
        assert "an effect\x1b that failed" in checks["broken effects"].text
        store.connections.close()


def test_work_of_the_lost_is_counted(store: Store) -> None:
    store.push("mail", b"1", b"2")
    store.join("mail")
    store.fetch("mail")
    assert found(store)["lost processes"].verdict == "ok"
    store.ask("DEL", store.keys.lease(ME))
    assert "holding 2 jobs" in found(store)["lost processes"].text


def test_a_secretive_server_is_checked_as_far_as_it_goes(store: Store) -> None:
    with running_server() as server:
        admin = Store(server.url)
        admin.ask("ACL", "SETUSER", "guest", "on", ">pass", "~*", "&*", "+@all", "-info", "-config")
        guest = Connections(server.url.replace("unix://", "unix://guest:pass@"))
        checks = {one.name: one for one in examine(guest, Keys())}
        unknown = {"server version", "eviction policy", "persistence", "memory"}
        assert {name for name, one in checks.items() if one.verdict == "warn"} == unknown
        assert {one.verdict for name, one in checks.items() if name not in unknown} == {"ok"}
        guest.close()
        admin.connections.close()


@pytest.mark.parametrize(
    ("info", "verdict", "text"),
    [
        (b"redis_version:6.0.16\r\n", "bad", "Redis 6.0.16 is too old"),
        (b"redis_version:6.2.0\r\n", "ok", "Redis 6.2.0"),
        (b"redis_version:7.2.4\r\nvalkey_version:9.0.1\r\n", "ok", "Valkey 9.0.1"),
        (b"redis_version:unstable\r\n", "bad", "too old"),
    ],
)
def test_versions(store: Store, info: bytes, verdict: str, text: str) -> None:
    check = said(store, INFO=info)["server version"]
    assert check.verdict == verdict
    assert text in check.text


@pytest.mark.parametrize(("used", "verdict"), [(70, "ok"), (80, "warn"), (96, "bad")])
def test_memory(store: Store, used: int, verdict: str) -> None:
    assert said(store, INFO=b"used_memory:%d\r\nmaxmemory:100\r\n" % used)["memory"].verdict == verdict


@pytest.mark.parametrize(("ahead", "verdict"), [(0.0, "ok"), (15.0, "warn"), (-100.0, "bad")])
def test_clocks(store: Store, ahead: float, verdict: str) -> None:
    def now() -> list[bytes]:
        moment = store.now() + ahead
        return [b"%d" % int(moment), b"%d" % int(moment % 1 * 1e6)]

    check = said(store, TIME=now)["clocks"]
    assert check.verdict == verdict, check


def test_no_server() -> None:
    with pytest.raises(ServerAway):
        examine(Connections("redis://127.0.0.1:1/0"), Keys())


def test_ordered_queues_that_no_definition_serves(store: Store) -> None:
    def look(*defined: str) -> tuple[str, str]:
        check = unserved(store.connections, store.keys, defined)
        return check.verdict, check.text

    def push(queue: str, *ids: bytes) -> None:
        rows = [ordered.Push(one, "", "1", b"{}") for one in ids]
        store.run(ordered.push(store.keys, queue, "min", rows))

    assert look()[0] == "ok", "there are none"
    push("products", b"1", b"2")
    assert look("products")[0] == "ok"
    assert look("other") == ("warn", "no definition of this app serves products (2 ids)")
    push("prices", b"1")
    push("stock", b"1")
    store.ask("DEL", store.keys.ordered("stock") + "due")  # known, and nothing waits there
    assert look("products") == ("warn", "no definition of this app serves prices (1 id)")
    assert look() == ("warn", "no definition of this app serves prices (1 id), products (2 ids)")
    assert look("prices", "products") == ("ok", "nothing waits in any that this app does not define")


def test_connections_are_counted_and_needed() -> None:
    with running_server("--maxclients", "64") as server:
        store = Store(server.url)
        check = found(store)["connections"]
        assert (check.verdict, check.text) == ("ok", "1 of 64 in use")
        for number in range(2):
            name = f"host:{number}:0123456789ab"
            info = json.dumps({"pid": number, "concurrency": 25, "queues": ["a", "b"], "version": "henchman 1"})
            store.ask("SADD", store.keys.processes, name)
            store.ask("HSET", store.keys.process(name), "info", info, "beat", store.now(), "busy", 0, "quiet", "false")
        check = found(store)["connections"]
        assert (check.verdict, "2 worker processes may need 70" in check.text) == ("bad", True), check
        assert "maxclients" in check.advice
        assert "not known" in said(store, INFO=b"", CONFIG=[])["connections"].text
        store.connections.close()


def test_what_takes_the_memory_the_most_first(store: Store) -> None:
    assert found(store)["memory by kind"].text == "nothing, or the server does not allow MEMORY USAGE"
    store.push("mail", *(b"%d" % one * 500 for one in range(200)))
    store.ask("ZADD", store.keys.dead, 1, b"x" * 2000)
    told = found(store)["memory by kind"].text
    assert re.fullmatch(r"about queues \d\d+ KB, dead \d\.\d KB", told), told


def test_batches_that_are_not_measured_count_as_those_that_are(store: Store) -> None:
    for one in range(200):
        store.ask("ZADD", store.keys.batches, one, f"b{one}")
        store.ask("HSET", store.keys.batch(f"b{one}"), "total", 1, "text", b"x" * 1000)
    told = found(store)["memory by kind"].text
    assert (many := re.match(r"about batches (\d+) KB", told)), told
    assert 200 < int(many[1]) < 400, "of 200 batches of about 1.2 KB, 20 were measured"


def test_what_takes_the_memory_may_not_be_asked(store: Store) -> None:
    store.ask("ACL", "SETUSER", "guest", "on", ">pass", "~*", "&*", "+@all", "-memory|usage")
    guest = Connections(store.connections.url.replace("unix://", "unix://guest:pass@"))
    checks = {one.name: one for one in examine(guest, Keys())}
    assert checks["memory by kind"].verdict == "ok"
    assert "better with: memory|usage" in checks["rights"].text
    guest.close()
    store.ask("ACL", "DELUSER", "guest")


def test_who_has_which_duty_and_what_runs(store: Store) -> None:
    assert found(store)["duties"].text == "nobody has one: no worker lives"
    assert found(store)["versions"].text == "no worker"
    store.ask("SET", store.keys.staging, "web-1:4:aa")
    store.ask("SADD", store.keys.processes, "web-1:4:aa", "web-2:4:bb")
    for one in ("web-1:4:aa", "web-2:4:bb"):
        store.ask("HSET", store.keys.process(one), "info", b'{"version":"henchman 1.2.0","tag":"v7"}', "beat", 1)
    checks = found(store)
    assert checks["duties"].text == "scheduled jobs and retries: web-1:4:aa"
    assert checks["versions"].text == "henchman 1.2.0, v7 on 2"
