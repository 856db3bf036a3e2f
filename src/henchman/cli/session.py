"""What every command starts from: options, settings, server, app. A command that reads never starts a server."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from henchman.app import App
from henchman.config import Config
from henchman.embedded.folder import data_bytes
from henchman.embedded.server import EmbeddedServer
from henchman.errors import ConfigError, HenchmanError
from henchman.inspector.entry import Mask
from henchman.kernel.text import mask_url, visible
from henchman.store.connection import Connections
from henchman.store.keys import Keys
from henchman.supervisor.load import load_app, why_not

__all__ = ["NothingRuns", "Session", "as_json", "confirmed", "server_options", "settings_of"]

F = TypeVar("F", bound=Callable[..., Any])

NOTHING_RUNS = 3  # the exit status that service managers use for it


class NothingRuns(click.ClickException):
    """There is no server, or no worker, to speak of."""

    exit_code = NOTHING_RUNS


def settings_of(context: click.Context) -> dict[str, Any]:
    """What the options before and behind the command's name said."""
    held: dict[str, Any] = context.find_root().ensure_object(dict)
    return held


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None and parameter.name is not None:
        settings_of(context)[parameter.name] = value


def server_options(command: F) -> F:
    """The options that say which app and which server: for the group itself and for each command."""
    texts = {
        "-A --app": ("PKG.MOD:APP", "The app; it masks secret arguments, too."),
        "--redis redis_url": ("URL", "The server: redis://, rediss://, unix:// or sentinel://."),
        "--namespace": ("PREFIX", "The prefix before every key."),
        "--folder": ("DIR", "The embedded server's folder."),
    }
    for names, (value, help) in reversed(texts.items()):
        option = click.option(*names.split(), metavar=value, help=help, expose_value=False, callback=_remember)
        command = option(command)
    return command


as_json = click.option("--json", "as_json", is_flag=True, help="As one JSON document.")


class Session:
    """One command's view: ``config``, ``runner``, ``keys``, and the ``app`` when one was named."""

    def __init__(self, context: click.Context) -> None:
        self._given = settings_of(context)
        target = self._given.get("app")
        overrides = {name: self._given.get(name) for name in ("redis_url", "namespace", "folder")}
        overrides = {name: value for name, value in overrides.items() if value is not None}
        self.config = Config.load(arguments=overrides)
        self.app: App | None = _load(target or self.config.app)
        if self.app is not None:
            self.config = self.app.config.with_arguments(**overrides)
            if overrides and self.config != self.app.config:
                self.app.configure(**overrides)
        self.keys = Keys(self.config.namespace)
        self._runner: Connections | None = None
        self._plain: App | None = None
        context.call_on_close(self.close)

    def close(self) -> None:
        """Close the connections; made again when they are used again."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None
        for app in (self.app, self._plain):
            if app is not None:
                app.close()

    @property
    def runner(self) -> Connections:
        """The connections; NothingRuns when no server was configured and the embedded one is not up."""
        if self._runner is None:
            self._runner = Connections(
                self.url, connect_timeout=self.config.connect_timeout, io_timeout=self.config.io_timeout
            )
        return self._runner

    @property
    def url(self) -> str:
        """Where the server is; NothingRuns as above."""
        if self.config.redis_url is not None:
            return self.config.redis_url
        if not self.config.embedded:
            raise ConfigError(
                "no server is configured and embedded = false: set redis_url in henchman.toml, or REDIS_URL"
            )
        folder = self.config.server_folder()
        found = EmbeddedServer(folder).find()
        if found is not None:
            return found
        if data_bytes(folder):
            raise NothingRuns(
                f"the embedded server in {visible(str(folder))} is not running, because nobody uses it; it keeps its "
                "jobs and starts with the next worker (henchman work), or now: henchman server start"
            )
        raise NothingRuns(
            "nothing runs here: no server is configured (redis_url, REDIS_URL, --redis), and there is no embedded "
            f"one in {visible(str(folder))} (henchman server start)"
        )

    def any_app(self) -> App:
        """The app that was named, else one that knows the server and no jobs. It never starts a server."""
        if self.app is None:
            self._plain = self._plain or App(redis_url=self.url, namespace=self.config.namespace)
            return self._plain
        if self.app.config.redis_url is None:
            self.app.configure(redis_url=self.url)  # the embedded server that is up
        return self.app

    @property
    def shown_url(self) -> str:
        """The server's address as people may see it."""
        return visible(mask_url(self.url))

    @property
    def mask(self) -> Mask | None:
        """Hides secret arguments, when the app that knows them was named."""
        return None if self.app is None else self.app.registry.mask


def _load(target: str | None) -> App | None:
    if target is None:
        return None
    try:
        return load_app(target)
    except HenchmanError:
        raise
    except Exception as error:  # the module is the user's: whatever it raises when it is imported
        raise click.ClickException(visible(f"{target} cannot be imported: {why_not(error)[1]}")) from error


def at_terminal() -> bool:
    """Whether somebody can be asked."""
    return sys.stdin.isatty()


def confirmed(question: str, *, yes: bool) -> None:
    """Ask before something is lost for good; without a terminal the answer must stand in the command."""
    if yes:
        return
    if not at_terminal():
        raise click.UsageError(f"{question} There is nobody to ask here: say --yes.")
    click.confirm(question, abort=True)
