"""A folder and its server belong together: copies, forged notes, links, other users' folders lead nobody astray."""

from __future__ import annotations

import os
import shutil
import socket
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from henchman.embedded.server import EmbeddedServer
from henchman.errors import EmbeddedServerError
from support.embedded_user import UserProcess, run_id, say
from support.server import PrivateServer, server_binary

NOBODY = 65534


@pytest.fixture
def stranger() -> Iterator[PrivateServer]:
    """A server that is not this folder's."""
    one = PrivateServer()
    one.start()
    yield one
    one.stop()


def refused(folder: Path) -> str:
    """What each door says of a folder that is not to be trusted."""
    said = set()
    one = EmbeddedServer(folder, binary=server_binary())
    for door in (one.acquire, one.find, one.status, one.start, one.stop):
        with pytest.raises(EmbeddedServerError) as caught:
            door()
        said.add(str(caught.value))
    assert len(said) == 1
    return said.pop()


@pytest.mark.parametrize("how", ["-r", "-a"])
def test_a_copy_of_a_running_project_has_a_server_of_its_own(folder: Path, server: EmbeddedServer, how: str) -> None:
    url = server.start()
    first = run_id(folder)
    say(folder, "SET", "whose", "original")
    copied = folder.parent / "copy" / ".henchman"
    copied.parent.mkdir()
    subprocess.run(["cp", how, str(folder), str(copied)], check=True)
    copy = EmbeddedServer(copied, binary=server_binary())
    assert copy.find() is None
    assert copy.status().state == "stopped"
    assert not copy.stop(force=True), "nothing of its own runs"
    assert copy.acquire() == f"unix://{copied}/sock?db=0" != url
    assert run_id(copied) != first
    say(copied, "SET", "whose", "copy")
    assert say(folder, "GET", "whose") == "original"
    copy.release()
    assert copy.find() is None, "the copy leaves: its own server ends"
    assert server.find() == url
    assert run_id(folder) == first


def test_a_folder_that_was_moved_keeps_its_server(folder: Path, server: EmbeddedServer) -> None:
    server.start()
    first = run_id(folder)
    say(folder, "SET", "a", "1")
    moved = folder.parent / "moved" / ".henchman"
    moved.parent.mkdir()
    folder.rename(moved)
    anew = EmbeddedServer(folder, binary=server_binary())
    anew.acquire()
    assert say(folder, "EXISTS", "a") == ":0", "what stands in its old place is another server"
    there = EmbeddedServer(moved, binary=server_binary())
    assert there.acquire() == f"unix://{moved}/sock?db=0"
    assert run_id(moved) == first
    there.release()
    assert there.stop()
    assert anew.find() is not None
    assert (folder / "sock").is_socket(), "who goes takes only its own socket away"
    anew.release()
    assert (moved / "appendonlydir").is_dir()
    there.acquire()
    assert say(moved, "GET", "a") == "1"
    there.release()


def test_long_paths_are_bound_as_well(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = folder.parent.joinpath(*["a rather long name of a folder"] * 5, ".henchman")
    runtime = folder.parent / "run"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    original = EmbeddedServer(long, binary=server_binary())
    url = original.acquire()
    moved = long.with_name("moved") / ".henchman"
    moved.parent.mkdir()
    long.rename(moved)
    anew, there = EmbeddedServer(long, binary=server_binary()), EmbeddedServer(moved, binary=server_binary())
    assert there.find() == url
    assert anew.acquire() != url
    assert there.find() == url, "the socket of one that lives is nobody else's"
    anew.release()
    assert there.stop(force=True)
    original.release()


def test_a_forged_note_of_the_socket_sends_no_job_elsewhere(
    folder: Path, server: EmbeddedServer, stranger: PrivateServer
) -> None:
    server.acquire()
    server.release()
    (folder / "socket").write_text(str(stranger.socket))
    assert server.find() is None
    assert server.acquire() == f"unix://{folder}/sock?db=0"
    server.release()
    assert stranger.ask("PING") == "+PONG"


def test_a_note_that_is_forged_beside_a_living_server_is_set_right(
    folder: Path, server: EmbeddedServer, stranger: PrivateServer
) -> None:
    url = server.start()
    first = run_id(folder)
    (folder / "socket").write_text(str(stranger.socket))
    assert server.find() == url
    assert server.acquire() == url
    assert run_id(folder) == first
    server.release()
    assert server.stop()
    assert stranger.ask("PING") == "+PONG"


def test_a_socket_that_is_exchanged_is_not_used(folder: Path, server: EmbeddedServer, stranger: PrivateServer) -> None:
    server.start()
    say(folder, "SET", "a", "1")
    (folder / "sock").unlink()
    stranger.socket.rename(folder / "sock")
    assert server.find() is None
    server.acquire()
    assert say(folder, "GET", "a") == "1"
    assert server.stop(force=True)
    stranger.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can run another user's server")
def test_another_users_server_is_not_spoken_to(folder: Path, server: EmbeddedServer) -> None:
    server.start()
    (folder / "sock").unlink()
    folder.chmod(0o777)
    folder.parent.chmod(0o755)
    pid = os.fork()
    if not pid:
        os.setuid(NOBODY)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(folder / "sock"))
        listener.listen()
        while True:
            listener.accept()[0].sendall(b"+PONG\r\n")
    try:
        while not (folder / "sock").exists():
            pass
        assert f"{folder / 'sock'} belongs to user nobody" in refused(folder)
    finally:
        os.kill(pid, 9)
        os.waitpid(pid, 0)
        (folder / "sock").unlink()
    server.acquire()  # the old one is unreachable: it ends
    assert server.stop(force=True)


def test_a_link_in_place_of_the_folder(folder: Path) -> None:
    (folder.parent / "trap").mkdir()
    folder.symlink_to(folder.parent / "trap")
    text = refused(folder)
    assert f"{folder} is a symbolic link" in text
    assert f'folder = "{folder.parent / "trap"}"' in text
    assert not list((folder.parent / "trap").iterdir())


@pytest.mark.parametrize("name", ["server.log", "socket", "turn", "appendonlydir", "appendonlydir/x.incr.aof"])
def test_a_link_inside_the_folder(folder: Path, server: EmbeddedServer, name: str) -> None:
    server.acquire()
    server.release()
    target = folder.parent / "precious"
    target.write_text("precious")
    if (folder / name).is_dir():
        shutil.rmtree(folder / name)
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(target)
    text = refused(folder)
    assert f"{folder / name} is a symbolic link" in text
    assert "REDIS_URL" in text
    assert target.read_text() == "precious"
    (folder / name).unlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_another_users_folder_or_file(folder: Path, server: EmbeddedServer) -> None:
    server.acquire()
    server.release()
    os.chown(folder / "server.log", NOBODY, NOBODY)
    assert f"{folder / 'server.log'} belongs to user nobody" in refused(folder)
    os.chown(folder / "server.log", 0, 0)
    os.chown(folder, NOBODY, NOBODY)
    assert f"{folder} belongs to user nobody" in refused(folder)
    os.chown(folder, 0, 0)


@pytest.mark.parametrize("umask", [0o000, 0o027, 0o277])
def test_what_is_inside_is_for_its_user_alone_whatever_the_umask(
    folder: Path, user: Callable[..., UserProcess], umask: int
) -> None:
    before = os.umask(umask)
    try:
        one = user()
    finally:
        os.umask(before)
    one.do("acquire")
    say(folder, "SET", "a", "1")
    say(folder, "BGREWRITEAOF")
    one.do("release")
    one.do("acquire")
    modes = {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}
    assert {"sock", "server.log", "server.pid", "turn", "users", "socket", "appendonlydir"} <= modes.keys()
    assert modes == {name: 0o700 if name == "appendonlydir" else 0o600 for name in modes}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_what_was_open_to_others_is_closed(folder: Path, server: EmbeddedServer) -> None:
    server.acquire()
    server.release()
    (folder / "history.sqlite").touch()
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o777 if path.is_dir() else 0o666)
    server.acquire()
    assert [path for path in (folder, *folder.rglob("*")) if stat.S_IMODE(path.stat().st_mode) & 0o077] == []


def test_a_file_that_is_rewritten_while_it_is_put_on_disk_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from henchman.embedded import folder

    stays, goes = tmp_path / "stays.aof", tmp_path / "goes.aof"
    stays.write_bytes(b"x")
    lists, synced = [[goes, stays], [stays]], list[int]()
    monkeypatch.setattr(folder, "_data", lambda _: lists.pop(0))
    monkeypatch.setattr(folder.os, "fsync", synced.append)
    folder.sync(tmp_path)
    assert len(synced) == 1
    lists[:] = [[goes]] * 10
    with pytest.raises(FileNotFoundError):
        folder.sync(tmp_path)
