"""The server dies while jobs run, and the worker stops before it is back: who starts next in its folder tells it."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

import henchman.work.journal as journals
from henchman import App, Snooze
from henchman.kernel import failpoints
from henchman.store.keys import Keys
from henchman.work.journal import BAD, SUFFIX, Journal, waiting
from henchman.work.unit import InFlightList, Unit
from henchman.worker.launcher import Launcher, default_capsules
from support.server import PrivateServer, running_server
from support.worker import Heard, in_flight, jobs_in, looker, settled, until, working

LONG = 600.0  # a lease that does not run out meanwhile


@pytest.fixture
def server() -> Iterator[PrivateServer]:
    with running_server("--appendfsync", "always", appendonly=True) as one:
        yield one


@pytest.fixture
def redis(server: PrivateServer) -> Iterator[Redis]:
    with looker(server.url) as client:
        yield client


class Shop:
    """An app with one job for each way to end, each of which waits for ``release``."""

    def __init__(self, server: PrivateServer, folder: Path, **settings: Any) -> None:
        self.server, self.folder = server, folder
        given = {"lease": LONG, "heartbeat": 0.5, "concurrency": 8, "journal": folder, **settings}
        self.app = App(redis_url=server.url, **given)
        self.heard = Heard(self.app, "late", "journal_told", "journal_foreign", "journal_full", "part_failed")
        self.release, self.begun = threading.Event(), Counter[str]()

        def job(**options: Any) -> Callable[[Callable[..., Any]], Any]:
            return self.app.job(**options)

        @job(name="returns")
        def returns(name: str) -> None:
            self._go(name)

        @job(name="raises", retry=3)
        def raises(name: str) -> None:
            self._go(name)
            raise ValueError(name)

        @job(name="dies", retry=0)
        def dies(name: str) -> None:
            self._go(name)
            raise ValueError(name)

        @job(name="snoozes")
        def snoozes(name: str) -> None:
            self._go(name)
            raise Snooze(3600)

        @job(name="keyed", key="name", unique="running", followed=True)
        def keyed(name: str) -> None:
            self._go(name)

        @job(name="after", key="name", after=keyed)
        def after(name: str) -> None:
            self._go(f"after {name}")

        self.returns, self.raises, self.dies = returns, raises, dies
        self.snoozes, self.keyed, self.after = snoozes, keyed, after

    def _go(self, name: str) -> None:
        self.begun[name] += 1
        assert self.release.wait(60)

    def files(self) -> list[Path]:
        return sorted(self.folder.glob(f"*{SUFFIX}"))

    def ended_without_server(self, jobs: int) -> None:
        """``jobs`` begin, the server dies, they end, that is written down, and the worker stops."""
        launcher = Launcher(self.app, self.app_capsules())
        launcher.start()
        until(lambda: self.begun.total() == jobs, "all run")
        self.server.kill()
        self.release.set()
        until(lambda: len(launcher.acker._rows) == jobs, "all have ended")
        until(self.files, "it is written down while the server is away")
        launcher.stop(1.0)
        self.app.close()

    def app_capsules(self) -> Any:
        return default_capsules(self.app)


@pytest.fixture
def shop(server: PrivateServer, tmp_path: Path) -> Shop:
    return Shop(server, tmp_path / "journal")


def flight(redis: Redis) -> str:
    [key] = list(redis.scan_iter(match="hm:flight:*"))
    return key.decode()


def stay(redis: Redis) -> None:
    """Nobody has looked after the dead worker yet."""


def rescued(redis: Redis) -> None:
    """A lifeline gave its work back, the oldest last."""
    while redis.lmove(flight(redis), "queue:default", "LEFT", "RIGHT"):
        if not in_flight(redis):
            break


@pytest.mark.parametrize("meanwhile", [stay, rescued])
def test_the_next_worker_tells_every_ending(
    shop: Shop, server: PrivateServer, redis: Redis, meanwhile: Callable[[Redis], None]
) -> None:
    """Each is told as if its worker had lived: nothing runs again, keys are free, what waited goes on."""
    with shop.app.batch("b") as batch:
        shop.returns.enqueue("member")
    shop.returns.enqueue("plain")
    shop.raises.enqueue("retry")
    shop.dies.enqueue("dead")
    shop.snoozes.enqueue("snoozed")
    shop.keyed.enqueue("k")
    shop.after.enqueue("k")
    shop.ended_without_server(6)
    server.start()
    assert len(in_flight(redis)) == 6
    meanwhile(redis)
    later = Shop(server, shop.folder)
    later.release.set()
    with working(later.app):
        until(lambda: later.begun == {"after k": 1}, "what waited for one of them runs, and nothing else")
        settled(redis, 7)
        until(lambda: not later.files(), "all of it was told")
    assert [one["count"] for one in later.heard["journal_told"]] == [6]
    assert not later.heard["late"]
    assert batch.status().counts["finished"] == 1
    assert [job["class"] for job in jobs_in(redis, "retry")] == ["raises"]
    assert [job["class"] for job in jobs_in(redis, "dead")] == ["dies"]
    assert [job["class"] for job in jobs_in(redis, "schedule")] == ["snoozes"]
    assert int(redis.get("stat:processed")) == 7  # type: ignore[arg-type]
    assert int(redis.get("stat:failed")) == 2  # type: ignore[arg-type]
    assert not in_flight(redis)
    assert not redis.llen("queue:default")
    assert not [one for what in ("lock", "parked", "await") for one in redis.scan_iter(match=f"hm:{what}*")]


def test_a_job_that_somebody_started_meanwhile_is_late(shop: Shop, server: PrivateServer, redis: Redis) -> None:
    """Its second run decides; the file goes all the same."""
    shop.returns.enqueue("a")
    shop.returns.enqueue("b")
    shop.ended_without_server(2)
    server.start()
    redis.lmove(flight(redis), "taken", "LEFT", "RIGHT")
    later = Shop(server, shop.folder)
    with working(later.app):
        settled(redis, 1)
        until(lambda: not later.files(), "read to its end")
    assert [(one["count"], one["late"]) for one in later.heard["journal_told"]] == [(1, 1)]
    assert [one["ending"] for one in later.heard["late"]] == ["done"]
    assert later.begun.total() == 0
    assert redis.llen("taken") == 1
    assert not in_flight(redis)


def test_a_worker_that_lives_to_see_the_server_again_tells_it_itself(
    shop: Shop, server: PrivateServer, redis: Redis
) -> None:
    shop.returns.enqueue("a")
    with working(shop.app):
        until(lambda: shop.begun["a"], "it runs")
        server.kill()
        shop.release.set()
        until(shop.files, "it is written down")
        assert shop.files()[0].stat().st_mode & 0o777 == 0o600
        assert shop.folder.stat().st_mode & 0o777 == 0o700
        other = Shop(server, shop.folder)
        server.start()
        with working(other.app):
            settled(redis, 1)
            until(lambda: not shop.files(), "nothing waits any more")
        assert not other.heard["journal_told"], "a file of a living worker is its own"
    assert not in_flight(redis)
    assert shop.begun == {"a": 1}


def test_a_worker_whose_queue_it_was_is_not_needed(server: PrivateServer, redis: Redis, tmp_path: Path) -> None:
    shop = Shop(server, tmp_path, queues=["default"])
    shop.returns.enqueue("a")
    shop.ended_without_server(1)
    server.start()
    other = Shop(server, tmp_path, queues=["mail"])
    with working(other.app):
        settled(redis, 1)
        until(lambda: not other.files(), "it was told")
    assert not in_flight(redis)
    assert not redis.llen("queue:default")


def test_it_is_killed_while_it_tells(shop: Shop, server: PrivateServer, redis: Redis) -> None:
    """What it had taken over goes back, and the next one finds it there."""
    shop.returns.enqueue("a")
    shop.ended_without_server(1)
    server.start()
    killed = Shop(server, shop.folder)
    launcher = Launcher(killed.app, killed.app_capsules())
    launcher.session.join()
    launcher.acker._journal.begin(lambda row: None)
    assert len(in_flight(redis)) == 1
    for file in launcher.acker._journal._told:
        file.handle.close()  # as its end does
    launcher.session.held.clear()
    launcher.session.give_back_all()
    launcher.watcher.stop()
    killed.app.close()
    assert redis.llen("queue:default") == 1
    later = Shop(server, shop.folder)
    with working(later.app):
        settled(redis, 1)
        until(lambda: not later.files(), "it was told")
    assert later.begun.total() == 0
    assert not in_flight(redis)


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_lost_answer_of_taking_over_is_asked_for_again(
    shop: Shop, server: PrivateServer, redis: Redis, where: str
) -> None:
    for name in "abc":
        shop.returns.enqueue(name)
    shop.ended_without_server(3)
    server.start()
    later = Shop(server, shop.folder)
    failpoints.open_points(f"drop@adopt:{where}#1")
    try:
        with working(later.app):
            settled(redis, 3)
            until(lambda: not later.files(), "it was told")
    finally:
        failpoints.close()
    assert [(one["count"], one["late"]) for one in later.heard["journal_told"]] == [(3, 0)]
    assert later.begun.total() == 0
    assert not in_flight(redis)


def test_a_journal_of_other_data_is_never_told(shop: Shop, server: PrivateServer, redis: Redis) -> None:
    shop.returns.enqueue("a")
    shop.ended_without_server(1)
    server.start()
    kept = shop.files()
    [payload] = in_flight(redis)
    redis.flushall()
    redis.lpush("queue:default", payload)  # as of a backup
    later = Shop(server, shop.folder)
    later.release.set()
    with working(later.app):
        until(lambda: later.begun["a"] == 1, "it runs")
        settled(redis, 1)
    assert [one["file"] for one in later.heard["journal_foreign"]] == [str(kept[0])]
    assert later.files() == kept


def test_a_full_disk_is_told_once_and_work_goes_on(
    shop: Shop, server: PrivateServer, redis: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    shop.returns.enqueue("a")
    with working(shop.app) as launcher:
        until(lambda: shop.begun["a"], "it runs")
        server.kill()
        shop.release.set()
        until(lambda: shop.heard["part_failed"], "it is told")
        until(lambda: launcher.acker._away > 6, "it goes on trying")
        server.start()
        settled(redis, 1)
    assert [one["part"] for one in shop.heard["part_failed"]] == ["journal"]
    assert not in_flight(redis)


# --- files alone ------------------------------------------------------------------------------------------------------


def row(number: int, ending: str = "done", source: Any = None) -> Any:
    keys = Keys()
    there = InFlightList("q", keys.queue("q"), keys.in_flight("h:1:a", 1, "q"), "h:1:a", 1)
    unit = Unit(b'{"class":"c","args":[%d],"jid":"j%d"}' % (number, number), there, time.monotonic(), source)
    return unit, ending, b"\xff stored", 1.5, b"[]"


def written(folder: Path, rows: list[Any], server: str = "s") -> Path:
    one = Journal(folder, server, "h:1:a")
    assert one.note(rows)
    one.close()
    [path] = folder.glob(f"*{SUFFIX}")
    return path


def read(folder: Path, server: str = "s") -> list[Any]:
    files = list(waiting(folder, server))
    for file in files:
        file.handle.close()
    return files


def test_what_is_written_is_read_as_it_was(tmp_path: Path) -> None:
    rows = [row(1), row(2, "released"), row(3, source=object()), row(4, "retry")]
    written(tmp_path, rows)
    [file] = read(tmp_path)
    assert file.ours
    assert [(one.payload, one.ending, one.stored, one.delay, one.effects) for one in file.rows] == [
        (rows[0][0].payload, "done", b"\xff stored", 1.5, b"[]"),
        (rows[3][0].payload, "retry", b"\xff stored", 1.5, b"[]"),
    ], "what is given back, and what another source settles, is not written"
    assert file.rows[0].flight == rows[0][0].flight.key
    assert not read(tmp_path, "other")[0].ours


def test_a_torn_last_line_is_ignored(tmp_path: Path) -> None:
    path = written(tmp_path, [row(1), row(2)])
    path.write_bytes(path.read_bytes()[:-9])
    [file] = read(tmp_path)
    assert [len(file.rows), file.ours, file.path] == [1, True, path]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_damaged_line_ends_the_file_and_keeps_it(tmp_path: Path, place: int) -> None:
    path = written(tmp_path, [row(1), row(2), row(3)])
    lines = path.read_bytes().splitlines(keepends=True)
    lines[place] = lines[place].replace(b'"', b"'", 1)
    path.write_bytes(b"".join(lines))
    [file] = read(tmp_path)
    assert len(file.rows) == max(place - 1, 0)
    assert file.ours is (place > 0)
    assert file.path == path.with_name(path.name + BAD)
    assert file.path.exists()
    assert read(tmp_path) == [], "it is not read again"


def test_an_empty_file_is_nobodys(tmp_path: Path) -> None:
    (tmp_path / f"1-2-3{SUFFIX}").touch()
    [file] = read(tmp_path)
    assert (file.rows, file.ours) == ([], False)


def test_one_reader_has_a_file(tmp_path: Path) -> None:
    path = written(tmp_path, [row(1)])
    first, second = waiting(tmp_path, "s"), waiting(tmp_path, "s")
    [mine] = list(first)
    assert list(second) == []
    mine.remove()
    assert not path.exists()
    assert read(tmp_path) == []


def test_it_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "MOST_LINES", 2)
    one = Journal(tmp_path, "s", "h:1:a")
    rows = [row(1), row(2), row(3)]
    assert not one.note(rows)
    assert not one.note(rows), "the two are not written twice"
    one.close()
    [file] = read(tmp_path)
    assert len(file.rows) == 2


def test_a_file_goes_when_nothing_in_it_is_held(tmp_path: Path) -> None:
    one = Journal(tmp_path, "s", "h:1:a")
    rows = [row(1), row(2)]
    one.settled([])
    assert one.note(rows)
    one.settled([rows[1][0]])
    assert len(list(tmp_path.iterdir())) == 1
    one.settled([])
    assert list(tmp_path.iterdir()) == []
    assert one.note([row(3)]), "and it begins anew"
    one.close()
    assert [len(file.rows) for file in read(tmp_path)] == [1]
