"""``henchman init`` and ``henchman completion``, as a newcomer's shell sees them."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from redis import Redis

from henchman.cli.main import henchman
from henchman.cli.project import _FILES as FILES
from support.processes import clean_environ
from support.worker import until

BIN = Path(sys.executable).parent


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """A newcomer's environment, with the commands of this one."""
    return clean_environ() | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}


@pytest.fixture
def running(env: dict[str, str], redis_url: str) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Processes that the test has started; they are over when it is."""
    env["HENCHMAN_REDIS_URL"] = redis_url
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for one in started:
        if one.poll() is None:
            one.kill()
            one.wait(30)


def test_the_commands_that_init_prints_run_the_project(
    env: dict[str, str], running: list[subprocess.Popen[bytes]], redis: Redis, tmp_path: Path
) -> None:
    def bash(line: str, folder: Path) -> str:
        done = subprocess.run(
            ["bash", "-c", line], cwd=folder, env=env, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    said = bash("henchman init 'my shop'", tmp_path)
    shop, log = tmp_path / "my shop", tmp_path / "log"
    assert {one.name for one in shop.iterdir()} == {*FILES}
    cd, test, work, push = [line.strip() for line in said.splitlines()[2:]]
    assert cd == "cd 'my shop'"
    assert "1 passed" in bash(f"{cd} && {test}", tmp_path)
    with log.open("wb") as out:
        words = shlex.split(work, comments=True)
        assert words == ["henchman", "work"]
        running.append(subprocess.Popen(words, cwd=shop, env=env, stdout=out, stderr=out))
    bash(f"{cd} && {push}", tmp_path)
    until(lambda: "Hello, Ada" in log.read_text(), "the worker ran the job")
    until(lambda: redis.get("stat:processed") == b"1", "the run is counted")
    running[0].send_signal(signal.SIGINT)
    assert running[0].wait(60) == 0, log.read_text()
    assert redis.llen("queue:default") == redis.zcard("retry") == redis.zcard("dead") == 0
    assert not redis.exists("stat:failed") or redis.get("stat:failed") == b"0"


@pytest.mark.parametrize("name", FILES)
def test_init_overwrites_nothing(project: Path, name: str) -> None:
    shop = project / "shop"
    shop.mkdir()
    (shop / name).symlink_to("nowhere")  # there, though it leads nowhere
    done = CliRunner().invoke(henchman, ["init", "shop"])
    assert done.exit_code == 1
    assert f"shop/{name} exists and is not overwritten; nothing was written" in done.output
    assert "henchman init FOLDER" in done.output
    assert [one.name for one in shop.iterdir()] == [name]


def test_init_says_what_it_cannot_write(project: Path) -> None:
    (project / "file").touch()
    done = CliRunner().invoke(henchman, ["init", "file/shop"])
    assert done.exit_code == 1
    assert "Error: cannot write file/shop/jobs.py: Not a directory; name another folder" in done.output


def test_init_says_what_is_missing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (project / "shop").mkdir()
    monkeypatch.chdir(project / "shop")
    done = CliRunner().invoke(henchman, ["init"])
    assert [line.strip() for line in done.output.splitlines()[2:4]] == [
        "pip install -r requirements-dev.txt",
        "python -m pytest",
    ]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd here")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "henchman.service"
    (tmp_path / "henchman").symlink_to(BIN / "henchman")
    text = FILES["henchman.service"]
    unit.write_text(text.replace("/srv/app/.venv/bin", str(tmp_path)).replace("=/srv/app", f"={tmp_path}"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True, timeout=60, check=False
    )
    ours = [line for line in done.stderr.splitlines() if "henchman.service" in line]
    assert (done.returncode, ours) == (0, []), done.stderr


COMPLETE = """
eval "$(henchman completion bash)"
COMP_WORDS=(%s) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
_henchman_completion henchman
printf '%%s\\n' "${COMPREPLY[@]}"
complete -p henchman
"""


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("henchman comp", {"completion"}),
        ("henchman dead ret", {"retry"}),
        ("henchman work --con", {"--concurrency"}),
        ("henchman completion ''", {"bash", "zsh", "fish"}),
    ],
)
def test_bash_completes(env: dict[str, str], tmp_path: Path, words: str, found: set[str]) -> None:
    done = subprocess.run(
        ["bash", "--norc", "-c", COMPLETE % words],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    *replies, registered = done.stdout.splitlines()
    assert {*replies} == found, done.stderr
    assert "-F _henchman_completion" in registered


@pytest.mark.parametrize(("shell", "head"), [("bash", "_henchman_completion() {"), ("zsh", "#compdef henchman")])
def test_completion_says_where_it_goes(shell: str, head: str) -> None:
    done = CliRunner().invoke(henchman, ["completion", shell])
    lines = done.output.splitlines()
    assert (done.exit_code, lines[0]) == (0, head)  # zsh reads its first line
    assert lines[-1].startswith("# into ~/.")
    fish = CliRunner().invoke(henchman, ["completion", "fish"]).output
    assert "complete --no-files --command henchman" in fish
    assert "henchman completion fish > ~/.config/fish/completions/henchman.fish" in fish.splitlines()[-1]
