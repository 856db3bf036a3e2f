"""The embedded server ends when nobody uses it any more, and not before, and never with jobs that are not written."""

from __future__ import annotations

import logging
import os
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from henchman.embedded import process as embedded_process
from henchman.embedded.folder import recorded_socket
from henchman.embedded.process import info
from henchman.embedded.server import EmbeddedServer
from henchman.errors import EmbeddedServerError
from support.embedded_user import UserProcess, run_id, say
from support.worker import until


def fill_the_disk(folder: Path) -> Callable[[], None]:
    """The server's file can grow no further, as on a full disk; returns what makes room again."""
    pid = EmbeddedServer(folder).status().pid
    assert pid is not None
    size = max(path.stat().st_size for path in folder.glob("appendonlydir/*.incr.aof"))
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size + 10, resource.RLIM_INFINITY))
    return lambda: resource.prlimit(pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2) and None


def push_until_refused(folder: Path) -> int:
    """How many were accepted."""
    accepted = 0
    while not (answer := say(folder, "RPUSH", "queue:default", f"job {accepted}")).startswith("-"):
        accepted += 1
        assert answer == f":{accepted}"
    assert "MISCONF" in answer
    return accepted


def test_the_last_to_leave_does_not_end_it_while_its_file_cannot_be_written(
    folder: Path, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(embedded_process, "WRITE_LIMIT", 1.5, raising=False)
    server.acquire()
    make_room = fill_the_disk(folder)
    accepted = push_until_refused(folder)
    assert accepted
    with caplog.at_level(logging.WARNING, "henchman"):
        server.release()
    assert "was not stopped" in caplog.text
    assert "kill -9" in caplog.text
    assert server.find() is not None
    assert say(folder, "LLEN", "queue:default") == f":{accepted}"
    with pytest.raises(EmbeddedServerError, match=r"was not stopped: .*append-only file.*free some space"):
        server.stop()
    with pytest.raises(EmbeddedServerError, match="only in its memory"):
        server.stop(force=True)
    told = subprocess.run(
        [sys.executable, "-m", "henchman", "server", "--folder", str(folder), "stop"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 1
    assert "was not stopped" in told.stderr
    make_room()
    server.stop()  # unless the watcher was first
    assert server.find() is None
    server.acquire()
    assert say(folder, "LLEN", "queue:default") == f":{accepted}"


def test_what_it_accepted_while_its_disk_was_full_is_there_when_there_is_room(
    folder: Path, user: Callable[..., UserProcess]
) -> None:
    """Nobody is left to end it, so it ends by itself when it has written."""
    one = user()
    one.do("acquire")
    make_room = fill_the_disk(folder)
    accepted = push_until_refused(folder)
    one.kill()
    time.sleep(3)  # for longer than the watcher waits between two looks
    assert say(folder, "LLEN", "queue:default") == f":{accepted}"
    make_room()
    until(lambda: EmbeddedServer(folder).find() is None, "it came about", 60)
    server = EmbeddedServer(folder)
    server.acquire()
    assert say(folder, "LLEN", "queue:default") == f":{accepted}"
    server.release()


def test_writes_are_accepted_again_when_the_end_was_refused(
    folder: Path, server: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded_process, "WRITE_LIMIT", 1.5, raising=False)
    server.acquire()
    make_room = fill_the_disk(folder)
    accepted = push_until_refused(folder)
    with pytest.raises(EmbeddedServerError):
        server.stop(force=True)
    make_room()
    until(lambda: not say(folder, "RPUSH", "queue:default", "more").startswith("-"), "it came about", 30)
    assert say(folder, "LLEN", "queue:default") == f":{accepted + 1}"


def test_it_ends_when_its_last_user_is_killed(folder: Path, user: Callable[..., UserProcess]) -> None:
    first, second = user(), user()
    first.do("acquire")
    second.do("acquire")
    say(folder, "SET", "a", "1")
    run = run_id(folder)
    first.kill()
    looked(folder)
    assert run_id(folder) == run, "the second one lives"
    second.kill()
    until(lambda: EmbeddedServer(folder).status().state == "stopped", "it came about", 30)
    until(lambda: not watchers(folder), "the watcher went with it", 30)
    server = EmbeddedServer(folder)
    server.acquire()
    assert say(folder, "GET", "a") == "1"
    server.release()


def test_it_stays_under_a_user_that_is_suspended(folder: Path, user: Callable[..., UserProcess]) -> None:
    one, other = user(), user()
    one.do("acquire")
    other.do("acquire")
    run = run_id(folder)
    os.kill(one.pid, signal.SIGSTOP)
    other.kill()
    looked(folder)
    assert run_id(folder) == run
    os.kill(one.pid, signal.SIGCONT)
    assert one.do("find") is not None
    one.do("release")
    assert EmbeddedServer(folder).find() is None


def test_it_stays_under_a_forked_child_and_not_under_one_that_never_used_it(
    folder: Path, user: Callable[..., UserProcess]
) -> None:
    parent = user()
    parent.do("acquire")
    child = parent.do("fork")
    parent.do("child acquire")
    run = run_id(folder)
    parent.kill()
    looked(folder)
    assert run_id(folder) == run
    os.kill(child, signal.SIGKILL)
    until(lambda: EmbeddedServer(folder).find() is None, "it came about", 30)


def test_one_that_is_to_stay_stays(folder: Path, server: EmbeddedServer, user: Callable[..., UserProcess]) -> None:
    server.start()
    run = run_id(folder)
    one = user()
    one.do("acquire")
    one.kill()
    looked(folder)
    assert run_id(folder) == run
    assert len(watchers(folder)) == 1


def test_a_watcher_that_was_killed_is_replaced_by_the_next_user(
    folder: Path, server: EmbeddedServer, user: Callable[..., UserProcess]
) -> None:
    server.acquire()
    (first,) = until(lambda: watchers(folder), "it came about", 30)
    os.kill(first, signal.SIGKILL)
    one = user()
    one.do("acquire")
    until(lambda: watchers(folder) not in ([], [first]), "it came about", 30)
    server.release()
    one.kill()
    until(lambda: server.find() is None and not watchers(folder), "it came about", 30)


def test_a_watcher_holds_nothing_and_makes_nothing(folder: Path, server: EmbeddedServer) -> None:
    ours = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(ours, True)
    server.acquire()
    os.close(ours)
    (watcher,) = until(lambda: watchers(folder), "it came about", 30)
    until(lambda: (folder / "watcher").stat().st_ino in _inodes(watcher), "it came about", 30)
    assert os.readlink(f"/proc/{watcher}/cwd") == "/"
    assert os.getsid(watcher) != os.getsid(0)
    open_files = {os.readlink(f"/proc/{watcher}/fd/{fd}") for fd in os.listdir(f"/proc/{watcher}/fd")}
    inside = {"watcher", "turn", "users", "server", "server.log"}
    assert open_files <= {"/dev/null", *(str(folder / name) for name in inside)}
    clients = int(info(recorded_socket(folder) or folder, "clients")["connected_clients"])
    assert clients == 1, "the question's own"
    server.release()
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()
    until(lambda: not Path(f"/proc/{watcher}").exists(), "it came about", 30)
    assert not folder.exists()


def test_killed_and_starting_users_in_a_storm(folder: Path, user: Callable[..., UserProcess]) -> None:
    """Whoever has acquired it finds it there, whoever else is killed at that moment; at the end it is gone."""
    dice = random.Random(10)
    crowd: list[UserProcess] = []
    until_when = time.monotonic() + 10
    while time.monotonic() < until_when:
        if len(crowd) < 3 or dice.random() < 0.3:
            crowd.append(user())
            crowd[-1].do("acquire")
        run = run_id(folder)
        while len(crowd) > 1 and dice.random() < 0.8:
            crowd.pop(dice.randrange(len(crowd))).kill()
        for one in crowd:
            assert one.do("find") is not None
        time.sleep(dice.random())
        assert run_id(folder) == run, "it was not ended under a living user"
        if dice.random() < 0.3:
            while crowd:
                crowd.pop().kill()
            if dice.random() < 0.5:
                time.sleep(dice.random() * 2)  # the watcher may or may not have ended it when the next one comes
    while crowd:
        crowd.pop().kill()
    until(lambda: EmbeddedServer(folder).find() is None and not watchers(folder), "it came about", 30)


def watchers(folder: Path) -> list[int]:
    """The processes that watch over this folder's server."""
    found = []
    for name in os.listdir("/proc"):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[-2:-1] == [os.fsencode(folder)] and b"-I" in words:
            found.append(int(name))
    return found


def looked(folder: Path) -> None:
    """Wait until the watcher has looked twice more: of its own accord it leaves the processor only between looks."""
    (pid,) = until(lambda: len(found := watchers(folder)) == 1 and found, "there is one watcher alone", 30)
    status = Path(f"/proc/{pid}/status")

    def sleeps() -> int:
        return int(status.read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0])

    before = sleeps()
    until(lambda: sleeps() >= before + 2, "the watcher has looked twice", 60)


def _inodes(pid: int) -> set[int]:
    found = set()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            found.add(os.stat(f"/proc/{pid}/fd/{fd}").st_ino)
        except OSError:
            continue
    return found
