"""``henchman web``: the command, a real server, a signal."""

from __future__ import annotations

import http.client
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from henchman import App
from support.browsing import DEAD
from support.server import DIE_WITH_PARENT

WEB = (sys.executable, "-m", "henchman", "web")


def test_it_serves_until_it_is_told_to_stop(shop: App, tmp_path: Path) -> None:
    command = [*WEB, "--redis", str(shop.config.redis_url), "--namespace", shop.config.namespace, "--port", "0"]
    guarded = [sys.executable, "-ISc", DIE_WITH_PARENT] if sys.platform == "linux" else []
    child = subprocess.Popen([*guarded, *command], stdout=subprocess.PIPE, text=True, cwd=tmp_path)
    try:
        assert child.stdout is not None
        said = child.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/ ", said)
        assert found, said
        line = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=30)
        line.request("GET", f"/jobs/{DEAD}")
        answer = line.getresponse()
        assert answer.status == 200
        assert b"CardDeclined" in answer.read()
        line.close()
        child.send_signal(signal.SIGINT)
        assert child.wait(30) == 0
    finally:
        child.kill()
        child.communicate()


def test_others_are_let_in_only_with_a_password(shop: App, tmp_path: Path) -> None:
    command = [*WEB, "--redis", str(shop.config.redis_url), "--host", "0.0.0.0", "--port", "0"]  # noqa: S104
    env = {name: value for name, value in os.environ.items() if not name.startswith("HENCHMAN_")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env, timeout=60, check=False)
    assert done.returncode == 1
    assert "set console_password (HENCHMAN_CONSOLE_PASSWORD) first" in done.stderr


@pytest.mark.parametrize("port", ["-1", "70000", "x"])
def test_a_port_that_is_none_is_wrong_usage(tmp_path: Path, port: str) -> None:
    done = subprocess.run([*WEB, "--port", port], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=False)
    assert done.returncode == 2
    assert "--port" in done.stderr
