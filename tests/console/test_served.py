"""``henchman web``: the command, a real server, a signal."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from henchman import App
from support.browsing import DEAD
from support.server import DIE_WITH_PARENT, running_server

WEB = (sys.executable, "-m", "henchman", "web")


@contextmanager
def served(shop: App, tmp_path: Path, *more: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The command, and the port of its console."""
    command = [*WEB, "--redis", str(shop.config.redis_url), "--namespace", shop.config.namespace, "--port", "0", *more]
    guarded = [sys.executable, "-ISc", DIE_WITH_PARENT] if sys.platform == "linux" else []
    child = subprocess.Popen([*guarded, *command], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        assert child.stdout is not None
        said = child.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/ ", said)
        assert found, said
        yield child, int(found[1])
    finally:
        child.kill()
        child.communicate()


def ended(folder: Path, *words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """The command, where it ends by itself."""
    command = [*WEB, *words]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env, timeout=60, check=False)


def read(port: int, path: str) -> bytes:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    line.request("GET", path)
    answer = line.getresponse()
    assert answer.status == 200
    body = answer.read()
    line.close()
    return body


def test_it_serves_until_it_is_told_to_stop(shop: App, tmp_path: Path) -> None:
    with served(shop, tmp_path) as (child, port):
        assert b"CardDeclined" in read(port, f"/jobs/{DEAD}")
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 0


def test_the_console_of_another_server_stands_beside_it(
    shop: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HENCHMAN_DATABASE_URL", f"sqlite:///{tmp_path}/history.db")
    with running_server() as server:
        other = App(redis_url=server.url)
        other.enqueue("Elsewhere", queue="elsewhere")
        other.close()
        with served(shop, tmp_path, "--also", f"staging={server.url}") as (child, port):
            assert b"CardDeclined" in read(port, f"/@main/jobs/{DEAD}")
            page = read(port, "/@staging/queues")
            assert b"elsewhere" in page
            assert b'class="tone staging"' in page
            assert b"history is off: history = " in read(port, "/@staging/history"), "the database is that of the first"
            child.send_signal(signal.SIGINT)
            assert child.wait(30) == 0


@pytest.mark.parametrize(
    ("also", "status", "why"),
    [
        ("staging", 2, "say NAME=pkg.mod:app, or NAME=redis://host:6379/0"),
        ("main=redis://127.0.0.1:1", 1, "'main' cannot name a console"),
        ("a/b=redis://127.0.0.1:1", 1, "'a/b' cannot name a console"),
        ("eu=nowhere:app", 1, "nowhere"),
        ("eu=htp://x", 1, "htp://x"),
    ],
)
def test_a_second_console_that_makes_no_sense(redis_url: str, tmp_path: Path, also: str, status: int, why: str) -> None:
    done = ended(tmp_path, "--redis", redis_url, "--port", "0", "--also", also)
    assert (done.returncode, why in " ".join(done.stderr.split())) == (status, True), done.stderr


def test_others_are_let_in_only_with_a_password(shop: App, tmp_path: Path) -> None:
    address = ("--redis", str(shop.config.redis_url), "--host", "0.0.0.0", "--port", "0")  # noqa: S104
    env = {name: value for name, value in os.environ.items() if not name.startswith("HENCHMAN_")}
    done = ended(tmp_path, *address, env=env)
    assert done.returncode == 1
    assert "set console_password (HENCHMAN_CONSOLE_PASSWORD) first" in done.stderr


@pytest.mark.parametrize("port", ["-1", "70000", "x"])
def test_a_port_that_is_none_is_wrong_usage(tmp_path: Path, port: str) -> None:
    done = ended(tmp_path, "--port", port)
    assert done.returncode == 2
    assert "--port" in done.stderr
