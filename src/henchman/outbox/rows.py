"""Rows of the outbox: made of pushes, written through a cursor, read by the relay. Needs no SQLAlchemy."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from henchman.client.prepared import PreparedPush
from henchman.errors import OutboxError

__all__ = ["COLUMNS", "Row", "StoredRow", "head_of", "insert_by_cursor", "line_lock", "lines_of", "rows_of"]

COLUMNS = ("jid", "queue", "payload", "due", "meta", "line", "created")
_INSERT = f"INSERT INTO henchman_outbox ({', '.join(COLUMNS)}) VALUES ({', '.join(['%s'] * len(COLUMNS))})"  # noqa: S608
#: by product, the statement that makes the writers of one line wait for each other until the end of the transaction
_LOCKS = {
    "postgresql": "SELECT pg_advisory_xact_lock(%s)",
    "mysql": "INSERT INTO henchman_outbox_line (line, turn) VALUES (%s, 1) ON DUPLICATE KEY UPDATE turn = turn + 1",
}

Row = Mapping[str, Any]


class StoredRow(NamedTuple):
    """A row as the relay reads it."""

    id: int
    jid: str
    queue: str
    payload: str
    due: float | None
    meta: str | None
    line: str | None
    problem: str | None


class _Head(msgspec.Struct, gc=False):
    """What every payload has."""

    name: str = msgspec.field(name="class")
    jid: str


head_of = msgspec.json.Decoder(_Head).decode


def rows_of(plan: PreparedPush, scheduled: bool, by_queue: Mapping[str, Sequence[bytes]], created: float) -> list[Row]:
    """The rows of one push. ``created``: Unix time."""
    meta = _meta(plan, scheduled)
    shared = {
        "due": plan.at if scheduled else None,
        "meta": msgspec.json.encode(meta).decode() if meta else None,
        "line": plan.line,
        "created": created,
    }
    return [
        {"jid": head_of(payload).jid, "queue": queue, "payload": payload.decode(), **shared}
        for queue, payloads in by_queue.items()
        for payload in payloads
    ]


def _meta(plan: PreparedPush, scheduled: bool) -> dict[str, Any]:
    """What the push must know beside the payload."""
    group = plan.group
    meta: dict[str, Any] = {}
    if scheduled and plan.at is None:
        meta["delay"] = plan.delay
    if plan.parked:
        meta["parked"] = True
    if group is not None:
        meta |= {"batch": group.id} | ({"member": group.member} if group.member else {})
    if group is not None or plan.tracked:
        meta["track"] = True
    return meta


def lines_of(rows: Iterable[Row]) -> list[str]:
    """The lines of ``rows``, in the order in which every writer locks them."""
    return sorted({row["line"] for row in rows if row["line"] is not None})


def line_lock(line: str) -> int:
    """The number of a line among PostgreSQL's advisory locks."""
    return int.from_bytes(hashlib.sha256(b"henchman outbox\n" + line.encode()).digest()[:8], "big", signed=True)


def insert_by_cursor(connection: Any, rows: Sequence[Row]) -> None:
    """Write rows through a connection of Django (``vendor``, ``cursor()``), as a part of its transaction."""
    vendor = str(connection.vendor)
    if vendor not in (*_LOCKS, "sqlite"):
        raise OutboxError(f"an outbox lives in PostgreSQL, MySQL, MariaDB or SQLite, not in {vendor}")
    with connection.cursor() as cursor:
        for line in lines_of(rows) if vendor in _LOCKS else ():
            cursor.execute(_LOCKS[vendor], [line_lock(line) if vendor == "postgresql" else line])
        cursor.executemany(_INSERT, [[row[name] for name in COLUMNS] for row in rows])
