"""Writing through SQLAlchemy: a session collects rows and inserts them with its commit, a connection inserts at once.

A session's rows go in with one statement just before its COMMIT, so that their ids are given late and in one piece: the
relay waits for ids that it has not seen. Where they would miss that moment (a push from within a flush, or after
``before_commit`` has been) they are inserted at once. The database itself sees to rollbacks of what was inserted; what
was only collected goes by the session's own transactions: a savepoint that is rolled back takes its rows along.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, event, func, insert, select
from sqlalchemy.dialects.mysql import insert as mysql_insert
from sqlalchemy.orm import Session, SessionTransaction

from henchman.errors import ArgumentError, OutboxError
from henchman.outbox.rows import Row, line_lock, lines_of
from henchman.outbox.schema import lines, outbox
from henchman.sql.rights import naming_rights

__all__ = ["aput", "put"]

_PENDING = "henchman_outbox"  # in ``session.info``


class _Pending:
    """The rows of one session's transaction. ``late``: its commit has begun, nothing is collected any more."""

    def __init__(self) -> None:
        self.entries: list[_PendingRows] = []
        self.woken: set[Callable[[], None]] = set()
        self.late = False


class _PendingRows:
    """Some rows, the transaction that they belong to, and the one within which they were inserted."""

    __slots__ = ("inserted", "owner", "rows")

    def __init__(self, rows: Sequence[Row], owner: SessionTransaction | None) -> None:
        self.rows = rows
        self.owner = owner
        self.inserted: SessionTransaction | None = None


def put(target: Any, rows: Sequence[Row], committed: Callable[[], None]) -> None:
    """Write ``rows`` as a part of the transaction of ``target``; ``committed()`` follows a session's commit.

    ``target``: a Session, a scoped session, an AsyncSession, or a Connection. ArgumentError for anything else.
    """
    if callable(target) and hasattr(target, "registry"):  # a scoped session
        target = target()
    session = getattr(target, "sync_session", target)
    if isinstance(session, Session):
        _collect(session, rows, committed, talks=session is target)
    elif isinstance(target, Connection):
        _insert(target, rows)
    elif hasattr(target, "sync_connection"):
        raise ArgumentError("through an AsyncConnection a job is written with aenqueue or awrite")
    else:
        raise ArgumentError(
            f"outbox={type(target).__name__}: give the session or connection whose transaction the job is to be part of"
        )


async def aput(target: Any, rows: Sequence[Row], committed: Callable[[], None]) -> None:
    """``put``, awaited; ``target`` may be an AsyncConnection, too."""
    if hasattr(target, "sync_connection"):
        await target.run_sync(_insert, rows)
    elif hasattr(target, "sync_session"):
        await target.run_sync(put, rows, committed)
    else:
        put(target, rows, committed)


def _insert(connection: Connection, rows: Sequence[Row]) -> None:
    with naming_rights(OutboxError, "INSERT", connection.engine.url.username or "of this connection"):
        _execute(connection, rows)


def _execute(connection: Connection, rows: Sequence[Row]) -> None:
    for line in lines_of(rows):  # before the ids are given: the order of a line is that of its ids
        if connection.dialect.name == "postgresql":
            connection.execute(select(func.pg_advisory_xact_lock(line_lock(line))))
        elif connection.dialect.name in ("mysql", "mariadb"):
            turn = mysql_insert(lines).values(line=line, turn=1)
            connection.execute(turn.on_duplicate_key_update(turn=lines.c.turn + 1))
    connection.execute(
        insert(outbox).inline(), list(rows)
    )  # nobody asks for the ids: no RETURNING, which would need SELECT


def _collect(session: Session, rows: Sequence[Row], committed: Callable[[], None], *, talks: bool) -> None:
    """``talks``: False of an AsyncSession outside of its greenlet, which can insert nothing now."""
    listened = _listen()
    if not session.in_transaction():
        session.begin()  # as any statement would
    pending: _Pending = session.info.setdefault(_PENDING, _Pending())
    entry = _PendingRows(rows, _innermost(session))
    pending.entries.append(entry)
    pending.woken.add(committed)
    if pending.late or (talks and not listened) or getattr(session, "_flushing", True):
        _write(session, [entry])


def _innermost(session: Session) -> SessionTransaction | None:
    return session.get_nested_transaction() or session.get_transaction()


def _write(session: Session, entries: Sequence[_PendingRows]) -> None:
    rows = [row for entry in entries for row in entry.rows]
    if rows:
        _insert(session.connection(bind_arguments={"clause": insert(outbox)}), rows)
        within = _innermost(session)
        for entry in entries:
            entry.inserted = within


def _listen() -> bool:
    """Listen to every session from now on; whether we did already."""
    if event.contains(Session, "before_commit", _before_commit):
        return True
    event.listen(Session, "before_commit", _before_commit)
    event.listen(Session, "after_soft_rollback", _after_soft_rollback)
    event.listen(Session, "after_commit", _after_commit)
    event.listen(Session, "after_transaction_end", _after_transaction_end)
    return False


def _before_commit(session: Session) -> None:
    """Insert what is pending, also at the release of a savepoint: a commit of the root with a savepoint that is still
    open would give us no later moment."""
    pending: _Pending | None = session.info.get(_PENDING)
    if pending is not None:
        pending.late = True
        _write(session, [entry for entry in pending.entries if entry.inserted is None])


def _after_soft_rollback(session: Session, previous: SessionTransaction) -> None:
    """Drop what was pushed within the transaction that was rolled back; what was pushed before it, and only inserted
    within it, is inserted again."""
    pending: _Pending | None = session.info.get(_PENDING)
    if pending is None:
        return
    pending.entries = [entry for entry in pending.entries if not _is_within(entry.owner, previous)]
    for entry in pending.entries:
        if _is_within(entry.inserted, previous):
            entry.inserted = None
            pending.late = False


def _is_within(inner: SessionTransaction | None, outer: SessionTransaction) -> bool:
    while inner is not None and inner is not outer:
        inner = inner.parent
    return inner is outer


def _after_commit(session: Session) -> None:
    if session.in_nested_transaction():  # a savepoint was released: what comes now is collected again
        if _PENDING in session.info:
            session.info[_PENDING].late = False
        return
    pending: _Pending | None = session.info.pop(_PENDING, None)
    for committed in () if pending is None else pending.woken:
        committed()


def _after_transaction_end(session: Session, ended: SessionTransaction) -> None:
    if ended.parent is None:
        session.info.pop(_PENDING, None)
