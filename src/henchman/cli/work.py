"""``henchman work``: the supervisor and its worker processes."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from henchman.cli.session import server_options, settings_of
from henchman.config import Config
from henchman.config.capsules import parse_queues
from henchman.errors import ConfigError
from henchman.log import handler as log
from henchman.supervisor.supervisor import TAG, Supervisor, say

__all__ = ["work"]


@click.command()
@server_options
@click.argument("target", required=False, metavar="[pkg.mod:app]")
@click.option("-q", "--queue", "queues", multiple=True, metavar="NAME[:WEIGHT]", help="Serve this queue; repeatable.")
@click.option("-c", "--concurrency", type=click.IntRange(1, 1000), help="Slots of each process (default 10).")
@click.option("-p", "--processes", type=click.IntRange(1, 256), help="Worker processes (default 1).")
@click.option("-t", "--timeout", type=click.FloatRange(0), metavar="SECONDS", help="Grace at a stop (25).")
@click.option("--log-format", type=click.Choice(["auto", "pretty", "json", "logfmt"]), help="How log lines look.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), help="From which level on.")
@click.option("--max-memory", metavar="MB", help="Replace a process that uses more memory than this.")
@click.option("--max-jobs", type=click.IntRange(1), metavar="N", help="Replace a process after this many jobs.")
@click.option("--health", metavar="[HOST:]PORT", help="Answer GET /live and /ready there.")
@click.option("--reload", is_flag=True, help="Start the processes anew when a source file changes (development).")
@click.pass_context
def work(context: click.Context, /, target: str | None, queues: tuple[str, ...], reload: bool, **given: Any) -> None:
    """Run jobs of the app at pkg.mod:app until told to stop.

    Without -q every queue that its jobs name is served, plus "default". Queues with weights (-q critical:3 -q default)
    are drawn by weight; without, the first comes first. Signals: TERM or Ctrl-C stop, TSTP quiet, TTIN stacks to the
    log, HUP rolls the processes over one by one.

    Exit status: 0 stopped as told and every job that ran has ended; 3 stopped as told, but jobs were cut off: they were
    given back and run again; 1 it could not start; 2 wrong usage.
    """
    parse_queues(queues)
    settings = {name: value for name, value in given.items() if value is not None}
    if "timeout" in settings:
        settings["shutdown_timeout"] = settings.pop("timeout")
    if queues:
        settings["queues"] = list(queues)
    inherited = settings_of(context)
    settings |= {name: inherited[name] for name in ("redis_url", "namespace", "folder") if name in inherited}
    projects: dict[str, Any] = inherited.get("settings", {})  # of Django, where its manage.py runs this
    config = Config.load(arguments={**projects, **settings, "queues": queues or projects.get("queues")})
    wanted = target or inherited.get("app") or config.app
    if wanted is None:
        raise ConfigError(
            'which app? Give it as pkg.mod:app, or set app = "pkg.mod:app" in henchman.toml or [tool.henchman]'
        )
    log.setup(config.log_format, config.log_level, process_tag=TAG)
    health = settings.pop("health", None) or config.health
    watcher = _watch_sources() if reload else None
    try:
        status = Supervisor(wanted, settings, config.processes, say, health).run()
    finally:
        if watcher is not None:
            watcher.terminate()
            watcher.wait(5.0)
    sys.exit(status)


def _watch_sources() -> subprocess.Popen[bytes]:
    """The process that tells us when a source changes."""
    if importlib.util.find_spec("watchfiles") is None:
        raise ConfigError("--reload needs the extra reload: pip install 'henchman[reload]'")
    command = [sys.executable, "-m", "henchman.supervisor.reload", str(Path.cwd())]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=0)  # noqa: S603 - ourselves
