"""The tutorial, third part: a project of one file, and the command that works it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from henchman import App
from support.worker import looker, settled, until

SHOP = """
from henchman import App

app = App()

@app.job
def note(text: str) -> None:
    with open("notes", "a") as notes:
        notes.write(text + chr(10))

if __name__ == "__main__":
    note.enqueue("hello")
"""


def test_henchman_work(tmp_path: Path, redis_url: str) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    notes = tmp_path / "notes"
    env = {**os.environ, "REDIS_URL": redis_url}
    subprocess.run([sys.executable, "shop.py"], cwd=tmp_path, env=env, check=True)

    with (tmp_path / "log").open("wb") as log:
        command = [sys.executable, "-m", "henchman", "work", "shop:app"]
        worker = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=log, stderr=subprocess.STDOUT)
    try:
        until(notes.exists, "the job was run")
        with looker(redis_url) as redis:
            settled(redis, 1)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0, (tmp_path / "log").read_text()
    finally:
        worker.kill()
        worker.wait(10)
    assert notes.read_text() == "hello\n"


def test_pushed_by_one_process_and_seen_by_another(app: App, tmp_path: Path, redis_url: str) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    subprocess.run([sys.executable, "shop.py"], cwd=tmp_path, env={**os.environ, "REDIS_URL": redis_url}, check=True)
    with looker(redis_url) as redis:
        [payload] = redis.lrange("queue:default", 0, -1)  # type: ignore[misc]
    assert b'"class":"shop.note","args":["hello"]' in payload  # the name that a worker can import
