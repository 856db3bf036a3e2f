"""Pages walked as a newcomer does: their files are written, their commands run, their outputs appear.

The tutorial and the How-to pages are walked from top to bottom, of the README its quick start. A block of Python or
TOML that begins with ``# name`` is that file; ``# name, continued`` is added to it. The lines of a ``sh`` block are
run, but for those that install something, name a made-up host (``.example``) or hold a word in capitals for the reader
to fill in (``JID``); ``henchman work`` stays in the background until the next one takes its place. The lines of a
``text`` block are seen, in any order, in what the commands before it or the worker have written; ``…`` is any text. A
comment ``# exit status 4`` behind a command says with which one it ends.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.processes import clean_environ
from support.worker import until

LOOK = re.compile("henchman (job|history|batch) ")
ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"^```(python|toml|sh|text)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NOT_FOR_US = re.compile(r"(pip|sudo|journalctl) |[^$]*\b(ID|JID|NAME)\b|.*\.example/")
WALKED = {
    page.stem: text
    for page in sorted((ROOT / "docs").glob("*.md"))
    if "**The task:**" in (text := page.read_text(encoding="utf-8"))
    and "\n```sh\n" in text
    and "\n```text\n" in text
    and page.stem not in ("api", "console")  # their servers take ports that are not ours alone; tests/web asks them
}


class Reader:
    """A newcomer who follows a page in an empty folder. ``programs``: where his Python is."""

    def __init__(self, folder: Path, programs: Path = Path(sys.executable).parent) -> None:
        self.folder = folder
        path = os.pathsep.join([str(programs), os.environ["PATH"]])
        self.env = clean_environ() | {"PATH": path, "COLUMNS": "120"}
        self.env.pop(
            "PYTHONUNBUFFERED", None
        )  # else each word of a print is a write, and lines of the log come between
        self.worker: subprocess.Popen[bytes] | None = None
        self.worker_log = folder / "worker.log"
        self.worker_log.touch()
        self.said = ""
        self.starts = 0  # how many workers have said that they are ready and were stopped

    def walk(self, text: str) -> None:
        for language, block in BLOCK.findall(text):
            if language in ("python", "toml"):
                self.write(block)
            elif language == "sh":
                self.said = ""
                for line in block.splitlines():
                    self.run(line)
            else:
                self.see(block)

    def write(self, text: str) -> None:
        head, _, body = text.partition("\n")
        named = re.match(r"# (\w+\.\w+)(, continued)?", head)
        if named is None:  # an excerpt of settings
            return
        name, continued = named.groups()
        file = self.folder / name
        file.write_text(f"{file.read_text()}\n\n{body}" if continued else body)

    def run(self, line: str) -> None:
        if NOT_FOR_US.match(line):
            return
        if line.startswith("henchman work"):
            self.stop()
            with self.worker_log.open("ab") as out:
                self.worker = subprocess.Popen(
                    shlex.split(line, comments=True), cwd=self.folder, env=self.env, stdout=out, stderr=out
                )
            until(lambda: self.worker_log.read_text().count("is ready") > self.starts, "the worker is ready")
            return
        status = re.search(r"# exit status (\d+)", line)
        wanted = int(status[1]) if status else 0
        done = self.bash(line)
        if done.returncode != wanted and LOOK.match(line):  # history is a moment behind
            until(lambda: self.bash(line).returncode == wanted, f"{line} ends with {wanted}", 30)
        else:
            assert done.returncode == wanted, f"{line}\n{done.stdout}{done.stderr}"
        self.said += done.stdout

    def bash(self, line: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", line],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

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
    yield made
    made.stop()
    made.bash("henchman server stop")  # one that a page has started stays up until then
    assert made.bash("henchman server status").returncode == 3, "none stays behind"


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_tutorial(reader: Reader) -> None:
    text = text_of("docs/tutorial.md")
    assert len(BLOCK.findall(text)) > 25
    reader.walk(text)


def quick_start() -> str:
    """The quick start of the README, without its installation."""
    return text_of("README.md").partition("## Quick start")[2].partition("\n## ")[0].partition("Write your jobs")[2]


def test_the_quick_start(reader: Reader) -> None:
    reader.walk(quick_start())


@pytest.mark.frameworks("it walks twenty pages with workers of their own, and takes minutes")
@pytest.mark.parametrize("page", WALKED)
def test_a_how_to_page(page: str, reader: Reader) -> None:
    reader.walk(WALKED[page])


def test_most_pages_are_walked() -> None:
    assert len(WALKED) >= 15
