"""Users who may do only what docs/rights.md lists, on a real server: everything works for them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import henchman
from henchman import App, ServerAway
from henchman.cli.main import henchman as command_line
from henchman.inspector.doctor import examine, rights
from henchman.store.call import load
from henchman.store.keys import ROLES, UNTRIED, WELCOME, Keys, acl_line
from henchman.worker import rescue
from support.dead import corpse, job
from support.processes import Work, push, records
from support.replicas import Node, fleet
from support.server import PrivateServer, running_server
from support.store import Store
from support.worker import Heard, in_flight, looker, settled, until, working

PAGE = Path(__file__).parents[2] / "docs" / "rights.md"
NAMESPACES = pytest.mark.parametrize("namespace", ["", "shop"])


@pytest.fixture
def server() -> Iterator[PrivateServer]:
    with running_server() as made:
        yield made


def user(server: PrivateServer, role: str, namespace: str = "") -> str:
    """The URL of a user who has just the rights of a role."""
    words = acl_line(role, role, Keys(namespace)).replace("PASSWORD", "secret").split()
    assert server.ask(*words) == "+OK"
    return server.url.replace("unix://", f"unix://{role}:secret@")


def refused(server: PrivateServer) -> str:
    """What the server refused anybody, as its log of that says."""
    return server.ask("ACL", "LOG")


@NAMESPACES
def test_producers_and_workers_need_no_more(server: PrivateServer, namespace: str) -> None:
    """Plain, scheduled, ordered, batches with callbacks, results, cancellation, cron."""
    pushing = App(redis_url=user(server, "producer", namespace), namespace=namespace)
    app = App(redis_url=user(server, "worker", namespace), namespace=namespace, concurrency=2)
    ran: list[str] = []
    for one in (pushing, app):

        @one.job(name="act", result_ttl=60)
        def act(name: str) -> str:
            ran.append(name)
            return name

        @one.job(name="fail", retry=False)
        def fail() -> None:
            raise ValueError("as told")

        @one.job(name="done")
        def done(batch: str) -> None:
            ran.append("callback")

        @one.ordered(queue="ids", name="ids")
        def ids(claim: dict[str, list[str]]) -> None:
            ran.extend(payload for payloads in claim.values() for payload in payloads)

    app.cron(every=0.5)(app.job(name="tick")(lambda: ran.append("tick")))
    heard = Heard(app, "part_failed", "server_away")
    with working(app):
        handle = pushing.enqueue("act", "plain")
        pushing.registry.get("act").using(delay=0.2).enqueue("scheduled")
        pushing.registry.get("act").enqueue_many([(f"bulk{n}",) for n in range(5)])
        pushing.registry.get("ids").push("x", "ordered", score=1)
        pushing.cancel(pushing.registry.get("act").using(delay=3600).enqueue("never").jid)
        with pushing.batch("b", on_complete="done") as batch:
            pushing.enqueue("act", "batched")
            pushing.enqueue("fail")
        wanted = {"plain", "scheduled", "ordered", "batched", "callback", "tick", *(f"bulk{n}" for n in range(5))}
        until(lambda: wanted <= set(ran), "all of it ran")
        assert handle.result(timeout=30) == "plain"
        until(lambda: batch.status().done, "the batch is complete")
    assert "never" not in ran
    assert not heard["part_failed"]
    assert not heard["server_away"]
    with looker(server.url) as redis:
        assert not in_flight(redis)
    assert "client|unblock" in refused(server) or refused(server) in ("*0", ""), refused(server)
    pushing.close()
    app.close()


#: what a producer's pushes run
PUSHED_BY = (
    "keyed_push",
    "batch_make",
    "batch_push",
    "batch_release",
    "batch_close",
    "batch_retry",
    "pause",
    "cancel",
)


@pytest.mark.parametrize("script", PUSHED_BY)
def test_a_producer_may_do_all_that_the_scripts_of_a_push_do(script: str) -> None:
    called = {word.lower() for word in re.findall(r"redis\.p?call\(\s*'(\w+)'", load(script).text)}
    assert len(called) > 3
    assert not called - {*ROLES["producer"]}


def test_a_producer_may_push_jobs_with_a_key(server: PrivateServer) -> None:
    """In each phase, a key that is free, one that is held, one that is remembered; in batches, too."""
    pushing, app = (App(redis_url=user(server, role)) for role in ("producer", "worker"))
    phases: dict[str, dict[str, Any]] = {
        "once": {"once": True},
        "until": {"unique": "until_success", "on_conflict": "wait"},
        "queued": {"unique": ("queued", "running"), "on_conflict": "replace"},
        "throttled": {"throttle": 60},
        "debounced": {"debounce": 0.3},
    }
    for one in (pushing, app):
        for name, options in phases.items():
            one.job(name=name, key="thing", **options)(lambda thing: None)

    def push() -> None:
        for name, options in phases.items():
            pushing.enqueue(name, "17")
            for atomic in (False, True):
                if "debounce" not in options and options.get("on_conflict") != "replace":
                    with pushing.batch(atomic=atomic):
                        pushing.enqueue(name, "17")
                        pushing.enqueue(name, "18")

    push()
    push()
    with working(app), looker(server.url) as redis:
        until(lambda: redis.keys("hm:once:*") and not redis.zcard("schedule"), "what was pushed has run")
        push()
        until(lambda: not redis.hlen("hm:parked") and not in_flight(redis), "what was pushed then, too")
    with looker(server.url) as redis:
        assert {one["object"] for one in redis.acl_log()} <= WELCOME.keys()
    pushing.close()
    app.close()


def forbidden(node: Node) -> set[str]:
    """What was tried on a server by one who must not, but for what is only better with."""
    with node.client() as redis:
        return {f"{one['username']}: {one['object']}" for one in redis.acl_log() if one["object"] not in WELCOME}


def test_after_a_failover_the_smallest_rights_are_enough(tmp_path: Path) -> None:
    """A replica takes over; workers (of a supervisor and embedded), producer and console go on as the same users."""
    with ExitStack() as stack:
        ring = stack.enter_context(fleet(tmp_path / "fleet", 1))
        for node in ring.nodes:  # each server has its own list of users: a replica does not follow the master's
            for role in ROLES:
                user(node, role)
        url = {role: ring.url.replace("sentinel://", f"sentinel://{role}:secret@") for role in ROLES}
        brief = {"HENCHMAN_LEASE": "5", "HENCHMAN_HEARTBEAT": "1"}
        work = stack.enter_context(Work(tmp_path / "w", url["worker"], "-c", "2", **brief))
        pushing = App(redis_url=url["producer"])
        app = App(redis_url=url["worker"], concurrency=2, queues=["own", "ids"], lease=5, heartbeat=0.5)
        stack.callback(pushing.close)
        ran: list[str] = []
        for one in (pushing, app):

            @one.job(name="note", queue="own", result_ttl=60)
            def note(name: str) -> str:
                ran.append(name)
                return name

            @one.job(name="fail_once", queue="own", retry_in=0.1)
            def fail_once(name: str) -> None:
                ran.append(name)
                if ran.count(name) == 1:
                    raise ValueError("as told")

            @one.ordered(queue="ids", name="ids")
            def ids(claim: dict[str, list[str]]) -> None:
                ran.extend(payload for payloads in claim.values() for payload in payloads)

        app.cron(every=0.5)(app.job(name="tick", queue="own")(lambda: ran.append("tick")))

        def all_of_it_works(when: str) -> None:
            wanted = {f"{kind} {when}" for kind in ("plain", "later", "ordered", "member")}
            handle = pushing.enqueue("note", f"plain {when}")
            pushing.registry.get("note").using(delay=0.2).enqueue(f"later {when}")
            pushing.registry.get("fail_once").enqueue(f"again {when}")
            pushing.registry.get("ids").push("x", f"ordered {when}")
            pushing.enqueue("act", f"theirs-{when}", "ok")
            pushing.cancel(pushing.registry.get("note").using(delay=3600).enqueue("never").jid)
            with pushing.batch("b", on_complete="note") as batch:
                pushing.enqueue("note", f"member {when}")
            until(lambda: wanted <= {*ran} and ran.count(f"again {when}") == 2, "all of it ran")
            assert handle.result(timeout=30) == f"plain {when}"
            until(lambda: batch.id in ran, "the callback of the batch ran")
            until(lambda: work.count("end")[f"theirs-{when}"] == 1, "the processes work")

        old = ring.master
        stack.enter_context(working(app))
        all_of_it_works("before")
        pushing.enqueue("act", "held", "held", 60)
        until(lambda: work.count("start")["held"], "it runs meanwhile")
        until(lambda: len(old.ask("INFO", "replication").split("lag=0")) > 1, "the replica has it")
        assert not forbidden(old)
        old.kill()
        new = ring.failed_over(old)
        until(lambda: _pushes(pushing), "the producer has found the new master")
        ran.clear()
        all_of_it_works("after")
        until(lambda: "tick" in ran, "crons go on")
        (tmp_path / "w" / "trace.open").touch()
        until(lambda: work.count("end")["held"] == 1, "what ran meanwhile was settled at the new master")
        with new.client() as redis:
            until(lambda: not in_flight(redis), "nothing is left in flight")
            until(lambda: len(records(redis)) == 2, "both processes are on the list")
        assert work.stop() == 0
        assert not forbidden(new), "nobody tried what he must not"
        console = App(redis_url=url["console"])
        stack.callback(console.close)
        found = {one.name: one for one in examine(console.connections, console.keys)}
        assert found["lost processes"].verdict == "ok", found["lost processes"]
        assert found["broken effects"].verdict == "ok", found["broken effects"]
        assert "may be a producer and a console" in found["rights"].text
        mine = rights(app.connections, app.keys)
        assert mine.verdict == "ok", mine


def _pushes(app: App) -> bool:
    try:
        app.enqueue("note", "the first")
    except ServerAway:
        return False
    return True


def test_a_worker_that_may_not_unblock_its_waits_stops_at_once(server: PrivateServer, tmp_path: Path) -> None:
    """It leaves what may still arrive to be swept, and nothing is lost."""
    with looker(server.url) as redis, Work(tmp_path / "w", user(server, "worker"), "-c", "1") as work:
        work.ready(redis)
        (identity,) = (one.decode() for one in redis.zrange("hm:identities", 0, -1))
        until(lambda: "blocked_clients:1" in server.ask("INFO", "clients"), "it waits for a push")
        assert work.stop() == 0
        assert redis.exists(f"hm:tomb:{identity}"), "it did not wait for its wait to end: what arrives now is swept"
        assert redis.zscore("hm:tombs", identity), "and it is swept"
        assert not redis.exists(f"hm:lease:{identity}")
        redis.lpush(f"hm:flight:{identity}:1:default", job("late"))
        with Work(tmp_path / "x", user(server, "worker"), "-c", "1"):
            settled(redis, 1)


def test_a_dead_host_is_rescued_without_info(
    server: PrivateServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a worker that may not ask the server who it is."""
    store = Store(server.url)
    corpse(store, job("a"))
    with Work(tmp_path / "w", user(server, "worker"), "-c", "1", ACTING_WATCH="2"):
        until(lambda: store.ask("GET", "stat:processed"), "what it held has run")
    assert not store.ask("EXISTS", store.keys.in_flight("host:1:dead00000000", 1, "default"))
    store.connections.close()


def test_without_info_another_run_of_the_server_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL, 1.5: a connection stands for its server: on another one the watch begins anew."""
    clock = [1000.0]
    monkeypatch.setattr(rescue, "awake", lambda: clock[0])
    with running_server("--appendfsync", "always", appendonly=True) as server:
        app, store = App(redis_url=user(server, "worker")), Store(server.url)
        corpse(store, job("a"))
        line_ = rescue.Lifeline(app)

        def looks(count: int) -> list[bytes]:
            for _ in range(count):
                line_.look()
                clock[0] += 5
            return store.queue("default")

        assert looks(3) == []
        server.kill()
        server.start()
        user(server, "worker")
        assert looks(3) == [], "25 s after the first look, 10 s after the first at this run"
        assert looks(1) == [job("a")]
        app.close()
        store.connections.close()


def test_the_command_line_reads_and_acts_with_the_rights_of_a_console(server: PrivateServer) -> None:
    url = user(server, "console")
    with looker(server.url) as redis:
        for number in range(3):
            push(redis, "gone", (number,))
    looks = ("status", "queues", "processes", "retries list", "scheduled list", "dead list", "cron", "doctor")
    for words in (*looks, "queues pause default", "queues unpause default", "queues clear default --yes"):
        done = CliRunner().invoke(command_line, [*words.split(), "--redis", url])
        assert done.exit_code in (0, 3), done.output
        assert "permission" not in done.output.lower(), done.output
    assert server.ask("EXISTS", "queue:default") == ":0", "it acted"


def test_each_line_of_the_page_is_the_one_that_is_tested() -> None:
    page = PAGE.read_text(encoding="utf-8")
    found = dict(re.findall(r"^ACL SETUSER (\w+) (.*)$", page, re.M))
    assert found == {role: acl_line(role, role, Keys()).split(" ", 3)[3] for role in ROLES}


@pytest.mark.parametrize("role", ROLES)
def test_a_trial_finds_just_what_is_missing(server: PrivateServer, role: str) -> None:
    """Asked by a user who lacks one command after the other; and nothing is left of asking."""
    url = user(server, role)
    app, store = App(redis_url=url), Store(server.url)
    assert f"not as a {role}" not in rights(app.connections, app.keys).text
    for name in ROLES[role]:
        if name in UNTRIED:
            continue
        store.ask("ACL", "SETUSER", role, f"-{name}")
        found = rights(app.connections, app.keys)
        assert f"+{name}" in found.advice, (name, found)
        store.ask("ACL", "SETUSER", role, f"+{name}")
    assert store.all_keys() == set()
    app.close()
    store.connections.close()


def test_every_command_of_a_script_is_among_the_rights() -> None:
    """Of a worker: it calls them all, as do people."""
    scripts = Path(henchman.__file__).parent / "store" / "lua"
    for one in scripts.glob("*.lua"):
        used = {name.lower() for name in re.findall(r"redis\.p?call\('(\w+)'", load(one.stem).text)}
        assert used <= set(ROLES["worker"]), one.stem
        assert used <= set(ROLES["console"]), one.stem


def test_no_role_needs_what_a_hardened_server_forbids(server: PrivateServer) -> None:
    dangerous = set(server.ask("ACL", "CAT", "dangerous").lower().split())
    for role, names in ROLES.items():
        assert not set(names) & dangerous, role
