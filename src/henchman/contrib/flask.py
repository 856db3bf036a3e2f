"""Flask: jobs run within the application's context, with its configuration; ``flask henchman`` is the command line.

Needs the extra ``flask``.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any, Final

import click

try:
    from flask import Flask, g, has_app_context
    from flask.cli import ScriptInfo, pass_script_info
except ImportError as missing:
    raise ImportError("henchman.contrib.flask needs Flask: pip install 'henchman[flask]'") from missing

from henchman.app import App
from henchman.cli.main import henchman
from henchman.contrib.project import checked_settings
from henchman.errors import ConfigError

__all__ = ["Henchman"]

TARGET: Final = f"{__name__}:app"  # as the command line names the app of jobs of FLASK_APP
_NAME: Final = "henchman"  # of Flask's extensions, of its configuration in capitals, of the command
_INSIDE: Final = "_henchman_inside"  # of g: what this request has open


class Henchman:
    """``jobs = Henchman()`` beside the other extensions, ``jobs.init_app(flask_app)`` in the factory.

    ``app``: the app of jobs, on which they are defined: ``@jobs.app.job``.
    """

    def __init__(self, flask_app: Flask | None = None, *, app: App | None = None) -> None:
        self.app = App() if app is None else app
        self._flask: Flask | None = None
        self._given: dict[str, Any] = {}
        if flask_app is not None:
            self.init_app(flask_app)

    def init_app(self, flask_app: Flask, *, session: Any = None) -> None:
        """Take the settings in ``flask_app.config["HENCHMAN"]``, run jobs in the context of ``flask_app``, and add the
        command ``flask henchman``.

        ``session``: a ``scoped_session`` (``db.session`` of Flask-SQLAlchemy): pushes of a request wait for its commit,
        and vanish with its rollback; the app of jobs must be ``App(transactional=True)``. ConfigError for settings that
        there are not. Of several applications (tests make one each) the last one's context is that of the jobs.
        """
        given = checked_settings(flask_app.config.get(_NAME.upper(), {}))
        if given != self._given:  # the same, in each test's application: the app may be connected by now
            self.app.configure(**given)
            self._given = given
        if self._flask is None:
            self.app.server_middleware.prepend(_Within(self))
        self._flask = flask_app
        flask_app.extensions[_NAME] = self
        flask_app.cli.add_command(_command)
        if session is not None:
            self._bind(flask_app, session)

    def _bind(self, flask_app: Flask, session: Any) -> None:
        load().bind(self.app, session)

        def begin() -> None:
            stack = ExitStack()
            stack.enter_context(self.app.inside(session))
            setattr(g, _INSIDE, stack)

        def end(error: BaseException | None) -> None:
            stack = g.pop(_INSIDE, None)
            if stack is not None:
                stack.close()

        flask_app.before_request(begin)
        flask_app.teardown_request(end)

    @property
    def flask_app(self) -> Flask:
        """The application whose context jobs have. ConfigError before ``init_app``."""
        if self._flask is None:
            raise ConfigError("no Flask application is known: jobs.init_app(flask_app) in the factory, which makes it")
        return self._flask


class _Within:
    """Server middleware, outermost: the context is popped when the run ends, which closes what hangs on it."""

    def __init__(self, jobs: Henchman) -> None:
        self._jobs = jobs

    def __call__(self, run: Any, call_next: Callable[[], Any]) -> Any:
        """Around a sync job."""
        with self._context():
            return call_next()

    async def awaited(self, run: Any, call_next: Callable[[], Awaitable[Any]]) -> Any:
        """Around an async job."""
        with self._context():
            return await call_next()

    def _context(self) -> AbstractContextManager[Any]:
        """A context of its own. A test that runs jobs within its own context keeps that."""
        return nullcontext() if has_app_context() else self._jobs.flask_app.app_context()


def load() -> Any:
    """What binds sessions: SQLAlchemy is no need of who pushes at once."""
    from henchman.contrib import sqlalchemy

    return sqlalchemy


def _jobs_of(flask_app: Flask) -> Henchman:
    found = flask_app.extensions.get(_NAME)
    if not isinstance(found, Henchman):
        raise ConfigError(f"{flask_app.name} has no jobs: Henchman().init_app(flask_app) where it is made")
    return found


def __getattr__(name: str) -> Any:
    """``app``: the app of jobs of the application that FLASK_APP names, for worker processes."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _jobs_of(ScriptInfo(os.environ.get("FLASK_APP")).load_app()).app


@click.command(
    _NAME,
    help="Run workers, and look at jobs: the whole command line of Henchman.",
    context_settings={"ignore_unknown_options": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("words", nargs=-1, type=click.UNPROCESSED)
@pass_script_info
def _command(info: ScriptInfo, words: tuple[str, ...]) -> None:
    _jobs_of(info.load_app())
    if info.app_import_path:
        os.environ["FLASK_APP"] = info.app_import_path  # worker processes find it there
    henchman(list(words), prog_name="flask henchman", obj={"app": TARGET, "settings": {}})
