"""SQLAlchemy: sessions whose commit a push waits for, and the listeners that send what waited.

SQLAlchemy knows no current session, so the program names it: ``with app.inside(session):``, or
``using(session=session)``. What it cannot see: work on a Core ``Connection`` or in ``engine.begin()``, which have no
events of sessions; and a two-phase transaction that another process ends.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, TypeVar, get_type_hints

from sqlalchemy import event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import Session, SessionTransaction, scoped_session, sessionmaker
from sqlalchemy.util import await_only

from henchman.contrib.submission import Submission
from henchman.errors import ConfigError, DefinitionError
from henchman.kernel.text import as_shown

__all__ = ["BoundSession", "bind", "inside", "open_transactions", "with_session"]

_KEY = "henchman.waiting"  # of Session.info
_heard: weakref.WeakSet[type[Any]] = weakref.WeakSet()  # classes of sessions that are listened to
#: the sessions whose blocks this thread or task is in, each with the client of its app
_inside: ContextVar[tuple[tuple[Any, Session], ...]] = ContextVar("henchman_inside", default=())


def bind(app: Any, maker: Any) -> None:
    """Let pushes of ``app`` wait for commits of the sessions that ``maker`` makes; say so once, where both are made.

    ``maker``: a ``sessionmaker``, ``async_sessionmaker``, ``scoped_session`` or ``async_scoped_session``, or a class of
    sessions. A push waits within ``with app.inside(session):``. ConfigError when the app is not transactional, or
    ``maker`` makes no sessions.
    """
    if not app.config.transactional:
        raise ConfigError("bind(app, …): this app waits for no commit; make it with App(transactional=True)")
    kind = _class_of(maker)
    if kind is None:
        raise ConfigError(f"bind(app, {as_shown(maker, 200)}): give a sessionmaker or an async_sessionmaker")
    app.client.bound = (*app.client.bound, kind)
    if issubclass(kind, Session) and kind not in _heard:
        _listen(kind)
        _heard.add(kind)


def _class_of(maker: Any) -> type[Any] | None:
    """The class of the sessions that ``maker`` makes; None when that cannot be known."""
    if isinstance(maker, scoped_session | async_scoped_session):
        maker = maker.session_factory
    made = maker.class_ if isinstance(maker, sessionmaker | async_sessionmaker) else maker
    return made if isinstance(made, type) and issubclass(made, Session | AsyncSession) else None


@contextmanager
def inside(client: Any, session: Any) -> Iterator[None]:
    """See ``App.inside``."""
    plain = _plain(session)
    held = session() if isinstance(session, scoped_session | async_scoped_session) else session
    if not isinstance(held, client.bound):
        raise ConfigError(
            f"inside({as_shown(session, 200)}): no bound sessionmaker makes such sessions; call "
            "henchman.contrib.sqlalchemy.bind(app, Session) where the sessionmaker is made"
        )
    entry = (client, plain)
    _inside.set((*_inside.get(), entry))
    try:
        yield
    finally:  # not by a token: the end of a generator may run in another context
        _inside.set(tuple(one for one in _inside.get() if one is not entry))


def open_transactions(client: Any, session: Any) -> list[BoundSession]:
    """The sessions that a push waits for: ``session``, else those whose blocks it stands in."""
    if session is not None:
        return [BoundSession(_plain(session))]
    sessions = dict.fromkeys(one for app, one in _inside.get() if app is client)
    return [BoundSession(one) for one in sessions]


def _plain(session: Any) -> Session:
    """The Session in whatever form one is given; DefinitionError when there is none."""
    found = session() if isinstance(session, scoped_session | async_scoped_session) else session
    found = found.sync_session if isinstance(found, AsyncSession) else found
    if not isinstance(found, Session):
        raise DefinitionError(f"session={as_shown(session, 200)}: give a Session or an AsyncSession of SQLAlchemy")
    return found


class BoundSession:
    """The transaction of one session."""

    name = "session=…"

    def __init__(self, session: Session) -> None:
        self._session = session

    @property
    def target(self) -> Session:
        """The session itself."""
        return self._session

    def has_outbox(self, outbox: str) -> bool:
        """The session was bound to an app with an outbox: it is of that database."""
        return True

    def defer(self, submission: Submission) -> None:
        """Keep ``submission`` until the session commits, unless a savepoint around the push is rolled back.

        A push is work on the session: a transaction begins with it where none had begun.
        """
        session = self._session
        if session.get_transaction() is None:
            session.begin()
        waiting = session.info.get(_KEY)
        if waiting is None:
            waiting = session.info[_KEY] = _Waiting()
            if not any(kind in _heard for kind in type(session).__mro__):
                _listen(session)
        waiting.add(session.get_nested_transaction() or session.get_transaction(), submission)


class _Waiting:
    """What waits in one session, by the level of its transaction: the root, or a SAVEPOINT."""

    def __init__(self) -> None:
        self._levels: dict[SessionTransaction | None, list[Submission]] = {}
        self.committing: SessionTransaction | None = None  # the root whose commit has begun
        self.committed: SessionTransaction | None = None  # the root that has committed, until it ends
        self.sending: asyncio.Future[None] | None = None

    def add(self, level: SessionTransaction | None, submission: Submission) -> None:
        """``submission`` shares the fate of ``level``."""
        self._levels.setdefault(level, []).append(submission)

    def release(self, savepoint: SessionTransaction) -> None:
        """What waited in ``savepoint`` now shares the fate of the level around it."""
        level = savepoint.parent
        while level is not None and not level.nested and level.parent is not None:
            level = level.parent  # a flush has a level of its own, which is none of the database
        for one in self.take(savepoint):
            self.add(level, one)

    def take(self, level: SessionTransaction | None) -> list[Submission]:
        """What waited in ``level``; it waits no more."""
        return self._levels.pop(level, [])


def _listen(target: Any) -> None:
    """Listen to a session, or to every session of a class, before the program's own listeners, which may raise."""
    event.listen(target, "before_commit", _before_commit, insert=True)
    event.listen(target, "after_commit", _after_commit, insert=True)
    event.listen(target, "after_transaction_end", _after_transaction_end, insert=True)


def _before_commit(session: Session) -> None:
    waiting: _Waiting | None = session.info.get(_KEY)
    if waiting is not None and not session.in_nested_transaction():
        waiting.committing = session.get_transaction()


def _after_commit(session: Session) -> None:
    """A SAVEPOINT was released, or the transaction has committed. Nothing may raise here: the session would be lost."""
    waiting: _Waiting | None = session.info.get(_KEY)
    if waiting is None:
        return
    savepoint = session.get_nested_transaction()
    if savepoint is not None:
        waiting.release(savepoint)
        return
    root = session.get_transaction()
    if waiting.committed is root:
        return  # two classes of this session are listened to
    waiting.committed = root
    if _awaited():  # begun here, so that a cancellation that comes while the commit is awaited finds it under way
        waiting.sending = _send_in_thread(waiting.take(root))


def _after_transaction_end(session: Session, transaction: SessionTransaction) -> None:
    """A level of the transaction is over; what still waits in it was rolled back, unless it has committed.

    Pushes are sent here: what strikes now (a cancellation, Ctrl-C) leaves the session in order.
    """
    waiting: _Waiting | None = session.info.get(_KEY)
    if waiting is None:
        return
    left = waiting.take(transaction)
    if waiting.committed is not transaction:
        if waiting.committing is transaction:
            _tell_lost_answer(left)
        return
    sending, waiting.sending, waiting.committed, waiting.committing = waiting.sending, None, None, None
    _send(left)
    if sending is not None:
        await_only(asyncio.shield(sending))


def _awaited() -> bool:
    """Whether an AsyncSession commits: then a greenlet of SQLAlchemy runs this. Its own question came after 2.0.0."""
    greenlet = sys.modules.get("greenlet")
    return greenlet is not None and type(greenlet.getcurrent()).__module__.startswith("sqlalchemy.")


def _send_in_thread(submissions: list[Submission]) -> asyncio.Future[None] | None:
    """Send in a thread, which no cancellation stops, and which the end of the event loop waits for."""
    if not submissions:
        return None
    try:
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()
        return loop.run_in_executor(None, context.run, _send, submissions)
    except RuntimeError:  # the event loop is closing and takes no more work
        _send(submissions)
        return None


def _send(submissions: Iterable[Submission]) -> None:
    """Send what waited, each app its own, in order."""
    by_client: dict[Any, list[Submission]] = {}
    for one in submissions:
        by_client.setdefault(one.client, []).append(one)
    for client, many in by_client.items():
        client.send(many)


def _tell_lost_answer(submissions: list[Submission]) -> None:
    """Tell of pushes whose transaction may have committed: the connection was lost, perhaps before its answer."""
    error = sys.exc_info()[1]
    if submissions and isinstance(error, DBAPIError) and error.connection_invalidated:
        for one in submissions:
            one.client.give_up([one], error)


# --- a session for each run -------------------------------------------------------------------------------------------

F = TypeVar("F", bound=Callable[..., Any])


def with_session(maker: Any, *, app: Any = None) -> Callable[[F], F]:
    """Give each run a session of its own: ``@app.job`` above ``@with_session(Session)`` above
    ``def charge(order_id: int, session: orm.Session)``.

    The parameter is the one annotated ``Session`` or ``AsyncSession``; it is no argument of the job. What the run did
    is committed when the function returns, and rolled back when anything is raised (a Failure, a Snooze, a time-out
    too), before the job is settled: a commit that fails is a run that fails. Then the session is closed.

    ``maker``: a ``sessionmaker``, for an ``async def`` an ``async_sessionmaker``. ``app``: what the function pushes
    waits for this commit, as within ``app.inside(session)``. Whoever calls the function and gives a session keeps it in
    hand: nothing is committed then. DefinitionError for a function without such a parameter, or of the other kind.
    """
    if not isinstance(maker, sessionmaker | async_sessionmaker):
        raise DefinitionError(f"with_session({as_shown(maker, 200)}): give a sessionmaker or an async_sessionmaker")

    def decorate(function: F) -> F:
        name = _session_parameter(function, AsyncSession if isinstance(maker, async_sessionmaker) else Session)
        return _without(name, function, _in_sessions(function, name, maker, app))

    return decorate


def _in_sessions(function: Callable[..., Any], name: str, maker: Any, app: Any) -> Callable[..., Any]:
    """``function`` with a session of its own for each call that gives none."""
    place = _place_of(name, function)

    def inside_of(session: Any) -> Any:
        return nullcontext() if app is None else app.inside(session)

    def called(session: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) > place:
            return function(*args[:place], session, *args[place:], **kwargs)
        return function(*args, **kwargs, **{name: session})

    async def arun(*args: Any, **kwargs: Any) -> Any:
        if name in kwargs:
            return await function(*args, **kwargs)
        async with maker.begin() as session:
            with inside_of(session):
                return await called(session, args, kwargs)

    def run(*args: Any, **kwargs: Any) -> Any:
        if name in kwargs:
            return function(*args, **kwargs)
        with maker.begin() as session, inside_of(session):
            return called(session, args, kwargs)

    return arun if isinstance(maker, async_sessionmaker) else run


def _place_of(name: str, function: Any) -> int:
    """Among the arguments that are given by place; far behind them for a parameter that is given by its name alone."""
    parameters = inspect.signature(function).parameters
    if parameters[name].kind is inspect.Parameter.KEYWORD_ONLY:
        return sys.maxsize
    return list(parameters).index(name)


def _without(name: str, function: F, runs: Any) -> F:
    """``runs`` in place of ``function``, which has the parameter ``name`` besides."""
    wrapped: Any = functools.wraps(function)(runs)
    signature = inspect.signature(function)
    wrapped.__signature__ = signature.replace(
        parameters=[one for one in signature.parameters.values() if one.name != name]
    )
    wrapped.__annotations__ = {one: kind for one, kind in function.__annotations__.items() if one != name}
    made: F = wrapped
    return made


def _session_parameter(function: Any, kind: type[Any]) -> str:
    """The name of the parameter that takes the session."""
    shown = f"with_session: {getattr(function, '__qualname__', as_shown(function, 200))}"
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise DefinitionError(f"{shown} is a generator, whose runs have no single end: open sessions in it")
    if inspect.iscoroutinefunction(function) != (kind is AsyncSession):
        way = "async def with an async_sessionmaker, def with a sessionmaker"
        raise DefinitionError(f"{shown} and its sessions are of different kinds: {way}")
    hints = get_type_hints(function)
    found = [name for name in inspect.signature(function).parameters if hints.get(name) is kind]
    if len(found) != 1:
        several = f"several parameters ({', '.join(found)})" if found else "no parameter"
        raise DefinitionError(f"{shown} has {several} annotated {kind.__name__}: it takes one session")
    if inspect.signature(function).parameters[found[0]].kind is inspect.Parameter.POSITIONAL_ONLY:
        raise DefinitionError(f"{shown}: {found[0]} is positional only, and is given by its name: take it behind the /")
    return found[0]
