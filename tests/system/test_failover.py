"""The server is replaced by its replica while workers run: by sentinels, and by hand behind a name that moves."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from redis import Redis

from henchman import App, ServerAway, Unconfirmed
from henchman.kernel.clock import awake
from henchman.worker import rescue, watcher
from support.processes import Work, records
from support.replicas import Fleet, Name, Node, fleet, nodes
from support.store import ME, Store
from support.worker import Heard, in_flight, until, working

BRIEF = {"HENCHMAN_LEASE": "5", "HENCHMAN_HEARTBEAT": "1"}


class Ran:
    """What ran in this process, by name."""

    def __init__(self, app: App) -> None:
        self.started: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.release = threading.Event()

        @app.job(name="note")
        def note(name: str) -> None:
            self.started[name] += 1
            self.ended[name] += 1

        @app.job(name="hold")
        def hold(name: str) -> None:
            self.started[name] += 1
            self.release.wait(250)
            self.ended[name] += 1

        self.note, self.hold = note, hold


@contextmanager
def told_on_failure(work: Work) -> Iterator[None]:
    try:
        yield
    except BaseException:
        print(work.log[-5000:])
        raise


def push_surely(app: App, name: str, limit: float = 60.0) -> None:
    """Enqueue as a program does that cannot go on without it: again while it is proven that nothing happened."""
    end = time.monotonic() + limit
    while True:
        try:
            app.enqueue("act", name, "ok")
            return
        except ServerAway as error:
            if error.executed is not False or time.monotonic() > end:
                raise


def test_sentinels_promote_a_replica_and_everything_goes_on(tmp_path: Path) -> None:
    with (
        fleet(tmp_path / "fleet", 2) as ring,
        Work(tmp_path / "w", ring.url, "-p", "2", "-c", "4", **BRIEF) as work,
        told_on_failure(work),
    ):
        old = ring.master
        with old.client() as redis:
            work.ready(redis, 2)
        app = App(redis_url=ring.url, wait_replicas=2, wait_timeout=30.0, io_timeout=60.0)
        accepted = [f"j{n}" for n in range(300)]
        for name in accepted[:50]:
            app.enqueue("act", name, "sleep", 0.1)
        app.enqueue("act", "later", "ok", delay=3.0)
        for name in accepted[50:250]:
            app.enqueue("act", name, "sleep", 0.1)
        for name in accepted[250:]:
            app.enqueue("act", name, "held", 90)
        until(lambda: work.count("end").total() >= 20, "some have ended")
        assert work.count("end").total() < 290, "the master dies while there is work"
        old.kill()
        (tmp_path / "w" / "trace.open").touch()
        new = ring.failed_over(old)
        until(lambda: set(work.count("end")) == {*accepted, "later"}, "every confirmed job ran")
        with new.client() as redis:
            until(lambda: not in_flight(redis) and not redis.llen("queue:default"), "nothing is left in flight")
            _the_same_fleet_serves_the_new_master(work, redis, ring)
        app.close()


def _the_same_fleet_serves_the_new_master(work: Work, redis: Redis, ring: Fleet) -> None:
    app = App(redis_url=ring.url)
    pids = work.children
    assert set(work.ready(redis, 2)) == set(pids), "no process was lost"
    until(lambda: redis.pubsub_numsub("hm:control")[0][1] == 2, "both listen to the control channel")  # type: ignore[index]
    until(lambda: b"cmd=blmove" in redis.execute_command("CLIENT", "LIST"), "idle workers wait for work")
    push_surely(app, "after")
    until(lambda: work.count("end")["after"] == 1, "it ran")
    app.enqueue("act_once", "long", "sleep", 30)
    until(lambda: work.count("start")["long"] == 1, "it runs")
    os.kill(work.pids("start", "long")[0], signal.SIGKILL)
    until(lambda: work.count("end")["long"] == 1, "the supervisor gave it back through the new master")
    until(lambda: "gave back the unfinished jobs" in work.log, "it says so")
    until(lambda: len(records(redis)) == 2, "the dead one is off the list")
    app.close()
    assert work.stop() == 0


@contextmanager
def behind_a_name(folder: Path) -> Iterator[tuple[Name, Node, Node]]:
    with nodes(folder, 2) as (old, new), Name(old.port) as name:
        yield name, old, new


@pytest.mark.parametrize("how", ["killed", "demoted", "lost"])
def test_a_replica_takes_over_behind_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr(watcher, "GRACE", 1.0)
    monkeypatch.setattr(watcher, "BLOCK", 1.0)
    monkeypatch.setattr(watcher, "QUIET", 1.0)
    with behind_a_name(tmp_path) as (name, old, new):
        app = App(redis_url=name.url, concurrency=4, heartbeat=0.5, io_timeout=1.0, connect_timeout=1.0)
        client = App(redis_url=name.url, wait_replicas=1, wait_timeout=30.0, io_timeout=60.0)
        heard = Heard(app, "part_failed")
        ran, pushed = Ran(app), Ran(client)
        with working(app):
            pushed.hold.enqueue_many([("h0",), ("h1",)])
            pushed.note.using(delay=2).enqueue("later")
            until(lambda: ran.started.total() == 2, "two run")
            pushed.note.enqueue_many([(f"n{n}",) for n in range(200)])
            new.promote()
            name.move(new.port)
            if how == "killed":
                old.kill()
                name.cut()
            elif how == "demoted":
                old.follow(new)  # connections stay open: to a server that refuses to write
            else:
                name.lose_host()  # connections stay open, and nothing is said on them any more
            client.close()
            client.configure(wait_replicas=0, io_timeout=5.0)
            pushed.note.enqueue("after")
            until(lambda: ran.ended["after"] and ran.ended["later"], "it goes on by itself")
            ran.release.set()
            names = {"h0", "h1", "later", "after", *(f"n{n}" for n in range(200))}
            until(lambda: set(ran.ended) == names, "every job ran")
            assert ran.started["h0"] == ran.started["h1"] == 1
            with new.client() as redis:
                until(lambda: not in_flight(redis), "nothing is left in flight")
                until(lambda: b"cmd=blmove" in redis.execute_command("CLIENT", "LIST"), "waits are armed again")
                until(lambda: redis.pubsub_numsub("hm:control")[0][1], "the control channel is heard again")  # type: ignore[index]
                pushed.note.enqueue("idle")
                until(lambda: ran.ended["idle"], "a push wakes an idle worker", 20)
        client.close()
        assert not heard["part_failed"], heard["part_failed"]


def test_a_control_channel_on_which_nothing_arrives_any_more_is_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when its host was lost before a wait was open, or a firewall forgot a connection on which nothing is said: the
    waits of the queues are well."""
    monkeypatch.setattr(watcher, "GRACE", 0.5)
    monkeypatch.setattr(watcher, "QUIET", 0.5)
    with nodes(tmp_path, 1) as (node,), Name(node.port) as name, node.client() as redis:
        app = App(redis_url=name.url, concurrency=2)
        heard, ran = Heard(app, "server_away", "part_failed", "quiet"), Ran(app)

        def listeners() -> set[str]:
            return {one["addr"] for one in redis.client_list(_type="pubsub")}

        with working(app):
            first = until(listeners, "it listens")
            time.sleep(3)  # many times as long as it waits for a word, and for an answer
            assert listeners() == first
            assert not heard["server_away"], "a channel on which nothing is said is well"
            name.mute(first)
            until(lambda: listeners() - first, "it listens anew")
            until(lambda: heard["server_away"], "it says so")
            assert "the control channel did not answer within 0.5 s" in str(heard["server_away"][0]["error"])
            redis.publish("hm:control", "quiet")
            until(lambda: heard["quiet"], "it obeys")
        assert not heard["part_failed"], heard["part_failed"]
        assert not in_flight(redis)
        assert not ran.started


def test_an_outage_longer_than_the_lease_that_ends_in_a_failover_steals_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rescue, "WATCH", 5.0)
    looked: list[float] = []
    look = rescue.Lifeline.look

    def noted(self: rescue.Lifeline, *, sweep: bool = True) -> float:
        left = look(self, sweep=sweep)
        looked.extend([awake()] if self.leader.leads else [])
        return left

    monkeypatch.setattr(rescue.Lifeline, "look", noted)
    with behind_a_name(tmp_path) as (name, old, new):
        apps = [App(redis_url=name.url, concurrency=2, lease=5, heartbeat=0.5, connect_timeout=0.5) for _ in "ab"]
        heard = [Heard(app, "rescued", "late", "refused", "part_failed") for app in apps]
        ran = [Ran(app) for app in apps]
        with working(apps[0]):
            ran[0].hold.enqueue("h")
            until(lambda: ran[0].started["h"], "it runs")
            with working(apps[1]):
                old.kill()
                name.cut()
                new.promote()
                with new.client() as redis:
                    until(lambda: not redis.keys("hm:lease:*"), "every lease ran out")
                    name.move(new.port)
                    until(lambda: len(redis.keys("hm:lease:*")) == 2, "both hold a lease again")  # type: ignore[arg-type]
                    certain = awake() + rescue.WATCH + rescue.LOOK
                    until(lambda: max(looked) > certain, "a lifeline has watched: what would be stolen, would be now")
                    ran[0].release.set()
                    until(lambda: ran[0].ended["h"], "it ends")
                    until(lambda: redis.get("stat:processed") or _told(*heard), "it is settled")
                    until(lambda: not in_flight(redis) or _told(*heard), "nothing is left in flight")
        assert ran[0].started + ran[1].started == {"h": 1}
        assert not _told(*heard)


def _told(*heard: Heard) -> list[Any]:
    return [fact for one in heard for name in ("rescued", "late", "refused", "part_failed") for fact in one[name]]


def test_what_was_seen_of_one_server_is_not_believed_of_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(rescue, "awake", lambda: clock.now)
    with behind_a_name(tmp_path) as (name, old, new):
        app = App(redis_url=name.url)
        store = Store(name.url)
        store.join("q")
        store.ask("DEL", store.keys.lease(ME))
        until(lambda: new.ask("EXISTS", store.keys.lease(ME)) == ":0" and new.in_step(), "the replica knows it")
        watch = rescue.Lifeline(_host(app))
        for clock.now in (0.0, 5.0, 10.0):
            watch.look()
        new.promote()
        name.move(new.port)
        old.kill()
        for clock.now in (14.0, 18.0, 23.0, 28.0):  # 28 s after the first look, 14 s after the first at this server
            watch.look()
            assert not store.ask("EXISTS", store.keys.tomb(ME)), clock.now
        clock.now = 30.0
        watch.look()
        assert store.ask("EXISTS", store.keys.tomb(ME))
        store.connections.close()
        app.close()


def _host(app: App) -> Any:
    return SimpleNamespace(config=app.config, keys=app.keys, connections=app.connections, events=app.events)


def test_confirmed_jobs_survive_the_loss_of_the_master_unconfirmed_ones_are_named(tmp_path: Path) -> None:
    with behind_a_name(tmp_path) as (name, old, new):
        app = App(redis_url=name.url, wait_replicas=1, wait_timeout=30.0, io_timeout=60.0)
        confirmed = [app.enqueue("act", n).jid for n in range(30)]
        app.close()
        app.configure(wait_timeout=0.3)
        new.ask("REPLICAOF", "127.0.0.1", "1")  # cut off from its master
        with pytest.raises(Unconfirmed) as caught:
            app.enqueue("act", "lonely")
        old.kill()
        new.promote()
        name.move(new.port)
        name.cut()
        with new.client() as redis:
            stored = b"".join(redis.lrange("queue:default", 0, -1))  # type: ignore[arg-type]
        assert all(jid.encode() in stored for jid in confirmed)
        assert caught.value.jids[0].encode() not in stored, "this is what Unconfirmed said"
        app.close()
