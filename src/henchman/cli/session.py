"""What every command starts from: options, settings, server, app. A command that reads never starts a server."""

from __future__ import annotations

import getpass
import os
import re
import socket
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from functools import cached_property, wraps
from typing import Any, TypeVar

import click

from henchman.app import App
from henchman.client.registry import Registry
from henchman.config import Config
from henchman.embedded.folder import data_bytes
from henchman.embedded.server import EmbeddedServer
from henchman.errors import ConfigError, HenchmanError
from henchman.inspector.base import Mask, mask_all
from henchman.kernel.figures import span
from henchman.kernel.text import SECONDS_OF, did_you_mean, mask_url, visible
from henchman.store.connection import Connections
from henchman.store.keys import Keys
from henchman.supervisor.load import load_app

__all__ = ["NOTHING_RUNS", "Group", "NothingRuns", "Session", "ShowGroup", "as_json", "command", "confirmed", "group"]
__all__ += ["caller", "for_so_long", "how_long", "server_options", "settings_of", "why", "yes"]

F = TypeVar("F", bound=Callable[..., Any])
Function = Callable[..., None]

NOTHING_RUNS = 3  # the exit status that service managers use for it
#: names of an option → its value, its help: which app and which server
_SERVER = {
    "-A --app": ("PKG.MOD:APP", "The app: its settings count, and what its jobs call secret is hidden."),
    "--redis redis_url": ("URL", "The server: redis://, rediss://, unix:// or sentinel://."),
    "--namespace": ("PREFIX", "The prefix before every key."),
    "--folder": ("DIR", "The embedded server's folder."),
}


class NothingRuns(click.ClickException):
    """There is no server, or no worker, to speak of."""

    exit_code = NOTHING_RUNS


# ---- commands and their options


def settings_of(context: click.Context) -> dict[str, Any]:
    """What the options before and behind the command's name said."""
    held: dict[str, Any] = context.find_root().ensure_object(dict)
    return held


def _remember(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None and parameter.name is not None:
        settings_of(context)[parameter.name] = value


def server_options(function: F) -> F:
    """The options of the group ``henchman`` itself, which may stand behind each command, too."""
    for names, (value, help) in reversed(_SERVER.items()):
        option = click.option(*names.split(), metavar=value, help=help, expose_value=False, callback=_remember)
        function = option(function)
    return function


as_json = click.option("--json", "as_json", is_flag=True, help="As one JSON document.")
yes = click.option("-y", "--yes", is_flag=True, help="Do not ask.")
why = click.option(
    "--reason", metavar="TEXT", default="", help="Why: lists, pages and findings show it, and who said it."
)


_LENGTH = re.compile(r"([1-9][0-9]{0,6})([smhd])")


def _seconds(context: click.Context, parameter: click.Parameter, value: str) -> float | None:
    found = _LENGTH.fullmatch(value)
    if value and found is None:
        raise click.BadParameter(f"{value!r} is no time: say 90s, 30m, 2h or 7d")
    return int(found[1]) * float(SECONDS_OF[found[2]]) if found else None


def for_so_long(seconds: float | None) -> str:
    """`` for 30 min``; empty for None."""
    return f" for {span(seconds)}" if seconds else ""


how_long = click.option(
    "--for", "lasts", metavar="TIME", default="", callback=_seconds, help="It ends by itself after 90s, 30m, 2h or 7d."
)


def command(
    parent: click.Group | None = None, name: str | None = None, help: str | None = None
) -> Callable[[Function], click.Command]:
    """A command whose function gets a ``Session`` first; ``parent`` is the group that it belongs to."""

    def make(function: Function) -> click.Command:
        made = click.command(name, help=help)(server_options(_with_session(function)))
        if parent is not None:
            parent.add_command(made)
        return made

    return make


def group(name: str | None = None, help: str | None = None) -> Callable[[Function], click.Group]:
    """A group whose function gets a ``Session``, and runs when no command of it is named."""

    def make(function: Function) -> click.Group:
        called = server_options(_with_session(function))
        return click.group(name, help=help, invoke_without_command=True, cls=Group)(called)

    return make


def _with_session(function: Function) -> Function:
    @wraps(function)
    def called(*args: Any, **given: Any) -> None:
        context = click.get_current_context()
        if context.invoked_subcommand is None:
            function(Session(context), *args, **given)

    return called


class Group(click.Group):
    """A group that names the command which a wrong word is near to."""

    def resolve_command(
        self, context: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(context, args)
        except click.UsageError as error:
            near = did_you_mean(args[0], self.list_commands(context))
            raise click.UsageError(f"No such command {visible(args[0])!r}{near}", context) from error


class ShowGroup(Group):
    """A group whose first word may also name a thing: ``henchman ordered NAME`` is ``henchman ordered show NAME``,
    whatever options stand before the name."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        words = iter(args)
        for word in words:
            if word in ("-A", "--app", "--redis", "--namespace", "--folder"):
                next(words, None)
            elif word in self.commands or word in context.help_option_names:
                break
            elif not word.startswith("-"):
                args = ["show", *args]
                break
        else:
            args = ["show", *args]
        return super().parse_args(context, args)


def at_terminal() -> bool:
    """Whether standard input is a terminal, so that a question can be answered."""
    return sys.stdin.isatty()


def caller() -> str:
    """Who runs this command: ``ana@host``."""
    try:
        name = getpass.getuser()
    except (OSError, KeyError):  # a container without such a user
        name = f"uid {os.getuid()}"
    return f"{name}@{socket.gethostname()}"


def confirmed(question: str, *, yes: bool) -> None:
    """Ask before something is lost for good; without a terminal the answer must stand in the command."""
    if yes:
        return
    if not at_terminal():
        raise click.UsageError(f"{question} There is nobody to ask here: say --yes.")
    click.confirm(question, abort=True)


# ---- ids by their beginning

JID = 24  # characters of an id as clients make it
PREFIX = 4  # characters of it that are enough, where no other begins so
SEVERAL = 5  # ids that are shown where more than one begins so


def the_one(text: str, known: Iterable[str]) -> str | None:
    """``text`` itself if it is known, else the one that begins with it, None without any; HenchmanError of several."""
    found = sorted({one for one in known if one.startswith(text)})
    if len(found) > 1 and text not in found:
        several = ", ".join(map(visible, found[:SEVERAL])) + (", …" if len(found) > SEVERAL else "")
        raise HenchmanError(f"{visible(text)} is the beginning of several: {several}")
    return text if text in found else next(iter(found), None)


# ---- server and app


class _Unknown(Registry):
    """The jobs of an app that does not import."""

    def mask(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        return mask_all(name, args, kwargs)


class Session:
    """One command's view: ``config``, ``runner``, ``keys``, and the ``app`` when one was named; each on first use.

    An app that does not import stops no command that looks: it is said once, all arguments are hidden, and the settings
    are those of this folder and environment. Only ``known_app`` raises then.
    """

    def __init__(self, context: click.Context) -> None:
        self._given = settings_of(context)
        self._closing = ExitStack()
        context.call_on_close(self._closing.close)

    @property
    def _overrides(self) -> dict[str, Any]:
        return {name: self._given[name] for name in ("redis_url", "namespace", "folder") if name in self._given}

    @cached_property
    def _plain(self) -> Config:
        return Config.load(arguments=self._overrides)

    @cached_property
    def _found(self) -> App | ConfigError | None:
        """The app that was named, or why it cannot be imported; None without one."""
        target = self._given.get("app") or self._plain.app
        if target is None:
            return None
        try:
            app = load_app(target)
            self._closing.callback(app.close)
            if app.config.with_arguments(**self._overrides) != app.config:
                app.configure(**self._overrides)
        except ConfigError as error:
            return error
        return app

    @cached_property
    def app(self) -> App | None:
        """The app that was named; None without one, and when it does not import."""
        if isinstance(self._found, ConfigError):
            more = "every argument is hidden, and settings that stand in it are not known"
            click.echo(visible(f"Warning: {self._found}; {more}"), err=True)
            return None
        return self._found

    @property
    def app_problem(self) -> str:
        """Why the app that was named does not import; "" when it does, or none was named."""
        return str(self._found) if isinstance(self._found, ConfigError) else ""

    @cached_property
    def config(self) -> Config:
        """The settings of the app, else those of this folder and environment."""
        return self._plain if self.app is None else self.app.config

    @cached_property
    def keys(self) -> Keys:
        """The keys of the server, with the namespace."""
        return Keys(self.config.namespace)

    @cached_property
    def runner(self) -> Connections:
        """The connections; NothingRuns when no server was configured and the embedded one is not up."""
        config = self.config
        made = Connections(self.url, connect_timeout=config.connect_timeout, io_timeout=config.io_timeout)
        self._closing.callback(made.close)
        return made

    @cached_property
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

    @cached_property
    def any_app(self) -> App:
        """The app that was named, else one that knows the server and no jobs. It never starts a server."""
        if self.app is None:
            plain = App(redis_url=self.url, namespace=self.config.namespace)
            if self.app_problem:
                plain.registry = _Unknown()
            self._closing.callback(plain.close)
            return plain
        if self.app.config.redis_url is None:
            self.app.configure(redis_url=self.url)  # the embedded server that is up
        return self.app

    @property
    def known_app(self) -> App:
        """``any_app`` for what enqueues: ConfigError when the app that was named does not import."""
        if isinstance(self._found, ConfigError):
            raise self._found
        return self.any_app

    @property
    def shown_url(self) -> str:
        """The server's address as people may see it."""
        return visible(mask_url(self.url))

    @property
    def mask(self) -> Mask | None:
        """Hides secret arguments, when an app was named: of one that does not import all."""
        if self.app_problem:
            return mask_all
        return None if self.app is None else self.app.registry.mask
