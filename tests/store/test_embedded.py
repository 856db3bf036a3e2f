"""The embedded server: one for all users of a folder, whoever starts, leaves or dies."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from henchman import App
from henchman.embedded.folder import LockFile, recorded_socket
from henchman.embedded.process import info
from henchman.embedded.server import EmbeddedServer
from henchman.errors import EmbeddedServerError
from support.embedded_user import UserProcess, run_id, say
from support.server import server_binary


def await_written(folder: Path) -> None:
    """Until all is in the file: while an fsync runs, the server keeps up to two seconds of writes in its memory."""
    sock = recorded_socket(folder)
    assert sock is not None
    end = time.monotonic() + 60
    while info(sock, "persistence")["aof_buffer_length"] != "0":
        assert time.monotonic() < end


def kill_server(folder: Path) -> None:
    pid = EmbeddedServer(folder).status().pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    gone = LockFile(folder / "server")
    assert gone.lock(limit=60)
    gone.unlock()


def test_the_only_user_starts_it_and_stops_it_and_the_data_stay(folder: Path, server: EmbeddedServer) -> None:
    assert server.find() is None
    url = server.acquire()
    assert url == f"unix://{folder}/sock?db=0"
    assert server.find() == server.acquire() == url
    assert say(folder, "SET", "a", "1") == "+OK"
    status = server.status()
    assert (status.state, status.users, status.kept) == ("running", 1, False)
    assert status.data_bytes > 0
    server.release()
    assert server.find() is None
    assert server.status().state == "stopped"
    server.release()
    server.acquire()
    assert say(folder, "GET", "a") == "1"


def test_it_is_detached_private_and_kept_out_of_git(folder: Path, server: EmbeddedServer) -> None:
    server.acquire()
    pid = server.status().pid
    assert pid is not None
    assert os.getsid(pid) != os.getsid(0)
    assert os.getpgid(pid) != os.getpgid(0)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "sock").stat().st_mode) == 0o600
    assert (folder / ".gitignore").read_text() == "*\n"
    assert say(folder, "CONFIG", "GET", "appendfsync") == "appendfsync\neverysec"


def test_processes_that_start_at_the_same_instant_end_on_one_server(
    folder: Path, user: Callable[..., UserProcess]
) -> None:
    users = [user() for _ in range(6)]
    for one in users:  # all are up and wait for this line
        one.tell("threads" if one is users[0] else "acquire")
    assert {one.answer() for one in users} == {f"unix://{folder}/sock?db=0"}
    assert (folder / "server.log").read_text().count(" is starting oO0") == 1
    assert EmbeddedServer(folder).status().users in {6, None}
    for one in users[:5]:
        one.do("release")
    assert users[5].do("find") is not None
    users[5].close()  # the end of a process is a leave
    assert EmbeddedServer(folder).find() is None


def test_processes_that_start_and_leave_at_once_always_have_a_server(
    folder: Path, user: Callable[..., UserProcess]
) -> None:
    users = [user() for _ in range(3)]
    for _ in range(10):
        for one in users:
            one.tell("acquire")
            one.tell("find")
            one.tell("release")
    for one in users:
        answers = [one.answer() for _ in range(30)]
        assert None not in answers[0::3]
        assert None not in answers[1::3], "between acquire and release there is a server"
    assert EmbeddedServer(folder).find() is None


def test_a_killed_user_leaves_the_data_to_the_next(
    folder: Path, server: EmbeddedServer, user: Callable[..., UserProcess]
) -> None:
    victim = user()
    victim.do("acquire")
    say(folder, "SET", "a", "1")
    victim.kill()
    server.acquire()  # finds it, or starts it again when the watcher was first
    assert say(folder, "GET", "a") == "1"
    server.release()
    assert server.find() is None


def test_a_killed_server_is_started_again_on_the_same_data(folder: Path, server: EmbeddedServer) -> None:
    url = server.acquire()
    first = run_id(folder)
    for number in range(100):
        say(folder, "RPUSH", "numbers", str(number))
    await_written(folder)
    kill_server(folder)
    assert server.find() is None
    assert server.ensure() == url
    assert run_id(folder) != first
    assert say(folder, "LLEN", "numbers") == ":100"
    server.release()
    assert server.find() is None


def test_users_that_miss_a_killed_server_together_get_one(folder: Path, user: Callable[..., UserProcess]) -> None:
    users = [user() for _ in range(4)]
    for one in users:
        one.do("acquire")
    kill_server(folder)
    for one in users:
        one.tell("ensure")
    assert len({one.answer() for one in users}) == 1
    assert (folder / "server.log").read_text().count(" is starting oO0") == 2


def test_a_forked_child_is_another_user(folder: Path, user: Callable[..., UserProcess]) -> None:
    parent = user()
    parent.do("acquire")
    child = parent.do("fork")
    parent.do("child release")  # it is no user yet: its parent's place is not its to give up
    assert parent.do("find") is not None
    assert parent.do("child acquire") == parent.do("acquire")
    parent.do("release")
    assert parent.do("find") is not None, "the child still uses it"
    parent.do("child release")
    assert parent.do("find") is None
    os.kill(child, signal.SIGKILL)


def test_a_forked_child_does_not_hold_its_dead_parents_place(
    server: EmbeddedServer, user: Callable[..., UserProcess]
) -> None:
    parent = user()
    parent.do("acquire")
    child = parent.do("fork")
    assert parent.do("child find") is not None  # it is up
    parent.kill()
    os.kill(child, 0)  # it lives
    server.acquire()
    server.release()
    assert server.find() is None
    os.kill(child, signal.SIGKILL)


def test_a_socket_path_that_is_too_long_is_replaced_by_a_short_one(
    folder: Path, user: Callable[..., UserProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = folder.parent.joinpath(*["a rather long name of a folder"] * 5, ".henchman")
    runtime = folder.parent / "run"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    one = EmbeddedServer(deep, binary=server_binary())
    url = one.acquire()
    assert url.startswith(f"unix://{runtime}/henchman-")
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert user(deep).do("acquire") == url, "another environment finds the same server"
    assert one.status().data_bytes > 0
    one.stop(force=True)


def test_a_foreign_or_linked_short_directory_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = folder.parent.joinpath(*["a rather long name of a folder"] * 5, ".henchman")
    runtime = folder.parent / "run"
    runtime.mkdir(mode=0o700)
    (folder.parent / "trap").mkdir()
    (runtime / f"henchman-{os.geteuid()}").symlink_to(folder.parent / "trap")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    one = EmbeddedServer(deep, binary=server_binary())
    assert str(runtime) not in one.acquire()
    assert not list((folder.parent / "trap").iterdir())
    one.release()


def test_a_left_over_socket_is_cleaned_up(folder: Path, server: EmbeddedServer) -> None:
    server.acquire()
    server.release()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(folder / "sock"))
    assert (folder / "sock").is_socket()
    assert server.find() is None
    server.acquire()
    assert say(folder, "PING") == "+PONG"


def test_a_server_whose_socket_was_removed_is_replaced(folder: Path, server: EmbeddedServer) -> None:
    server.acquire()
    say(folder, "SET", "a", "1")
    (folder / "sock").unlink()
    server.ensure()
    assert say(folder, "GET", "a") == "1"


def test_a_folder_that_was_removed_is_made_anew(folder: Path, server: EmbeddedServer) -> None:
    server.acquire()
    say(folder, "SHUTDOWN")
    shutil.rmtree(folder)
    assert server.acquire() == f"unix://{folder}/sock?db=0"
    assert server.status().users in {1, None}


def test_stop_is_refused_while_others_use_it(
    folder: Path, server: EmbeddedServer, user: Callable[..., UserProcess]
) -> None:
    others = [user(), user()]
    for one in others:
        one.do("acquire")
    server.acquire()
    with pytest.raises(EmbeddedServerError, match=r"in use by (2 processes|other processes)"):
        server.stop()
    assert server.status().users in {3, None}, "a refused stop gives nobody's place up"
    assert server.stop(force=True)
    assert server.find() is None
    assert not server.stop()
    others[0].do("ensure")
    assert server.find() is not None, "who needs it starts it again"


def test_a_server_that_was_started_by_hand_stays_until_it_is_stopped(folder: Path, server: EmbeddedServer) -> None:
    url = server.start()
    server.acquire()
    server.release()
    assert server.find() == url
    assert server.status().kept
    assert server.stop()
    assert (server.find(), server.status().kept) == (None, False)
    server.acquire()
    server.release()
    assert server.find() is None


def test_asking_for_connections_starts_nothing(folder: Path) -> None:
    app = App(folder=folder)
    assert (app.connections is None, app.aconnections is None) == (False, False)
    assert EmbeddedServer(folder).find() is None
    app.configure(concurrency=2)  # it is not connected
    app.enqueue("HardJob", 1)
    assert EmbeddedServer(folder).find() is not None
    assert app.connections is app.connections
    app.close()
    assert EmbeddedServer(folder).find() is None


def test_the_event_loop_turns_while_the_first_awaited_push_starts_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, real, within = App(folder=folder), EmbeddedServer.acquire, list[bool]()

    def acquire(server: EmbeddedServer) -> str:
        turned = threading.Event()
        loops[0].call_soon_threadsafe(turned.set)
        within.append(turned.wait(10))
        return real(server)

    monkeypatch.setattr(EmbeddedServer, "acquire", acquire)

    loops: list[asyncio.AbstractEventLoop] = []

    async def push() -> None:
        loops.append(asyncio.get_running_loop())
        await asyncio.gather(*(app.aenqueue("HardJob", number) for number in range(5)))
        await app.aclose()

    asyncio.run(push())
    assert within == [True]
