"""docs/tutorial.md, walked from top to bottom: its files are written, its commands run, its outputs appear.

A block of Python or TOML that begins with ``# name`` is that file; ``# name, continued`` is added to it. The lines of a
``sh`` block are run; ``henchman work`` stays in the background until the next one takes its place. The lines of a
``text`` block are seen, in any order, in what the commands before it or the worker have written; ``…`` is any text. A
comment ``# exit status 4`` behind a command says with which one it ends.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes import clean_environ
from support.worker import until

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(python|toml|sh|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Reader:
    """Somebody who does what the page says, in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        self.env = clean_environ() | {"PATH": path, "PYTHONPATH": str(folder), "COLUMNS": "120"}
        self.worker: subprocess.Popen[bytes] | None = None
        self.worker_log = folder / "worker.log"
        self.said = ""
        self.starts = 0  # how many workers have said that they are ready and were stopped

    def write(self, text: str) -> None:
        head, _, body = text.partition("\n")
        name, continued = re.fullmatch(r"# ([\w.]+)(, continued)?", head).groups()  # type: ignore[union-attr]
        file = self.folder / name
        file.write_text(f"{file.read_text()}\n\n{body}" if continued else body)

    def run(self, line: str) -> None:
        if line.startswith("henchman work"):
            self.stop()
            with self.worker_log.open("ab") as out:
                self.worker = subprocess.Popen(line.split(), cwd=self.folder, env=self.env, stdout=out, stderr=out)
            until(lambda: self.worker_log.read_text().count("is ready") > self.starts, "the worker is ready")
            return
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        status = re.search(r"# exit status (\d+)", line)
        assert done.returncode == (int(status[1]) if status else 0), f"{line}\n{done.stdout}{done.stderr}"
        self.said += done.stdout

    def see(self, text: str) -> None:
        wanted = [".*".join(map(re.escape, line.split("…"))) for line in text.splitlines()]

        def missing() -> list[str]:
            lines = [*self.said.splitlines(), *self.worker_log.read_text().splitlines()]
            return [one for one in wanted if not any(re.search(one, line) for line in lines)]

        until(lambda: not missing(), f"the page says: {text}", 60)
        self.said = ""

    def stop(self) -> None:
        if self.worker is not None:
            self.worker.send_signal(signal.SIGINT)
            assert self.worker.wait(60) == 0, self.worker_log.read_text()
            self.starts = self.worker_log.read_text().count("is ready")
            self.worker = None


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path)
    made.worker_log.touch()
    yield made
    made.stop()


def test_the_tutorial(reader: Reader) -> None:
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) > 25
    for language, text in blocks:
        if language in ("python", "toml"):
            reader.write(text)
        elif language == "sh":
            reader.said = ""
            for line in text.splitlines():
                reader.run(line)
        else:
            reader.see(text)
