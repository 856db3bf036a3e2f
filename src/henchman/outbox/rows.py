"""Rows of the outbox: made of pushes, written through a cursor, read by the relay. Needs no SQLAlchemy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from henchman.client.prepared import PreparedPush, record_of
from henchman.client.runtime import Runtime
from henchman.errors import OutboxError
from henchman.sql.rights import naming_rights
from henchman.store.outbox import OutboxPush
from henchman.wire.deadlines import with_deadline

__all__ = ["COLUMNS", "Row", "StoredRow", "head_of", "insert_by_cursor", "line_lock", "lines_of", "push_of", "rows_of"]

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


class _Ask(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """What the server is asked about the key of a job, as ``lua/lib/admit.lua`` takes it. A row that asks for more than
    we know, by a newer version, is not pushed without it."""

    scope: str
    phases: Annotated[str, msgspec.Meta(pattern="^[ofuwr]*$")]
    key: str
    mark: str
    conflict: Literal["skip", "replace", "wait"]
    once_for: Annotated[int, msgspec.Meta(gt=0)] | None = None
    again: bool = False
    throttle: Annotated[int, msgspec.Meta(gt=0)] | None = None
    debounce: Annotated[float, msgspec.Meta(gt=0)] | None = None
    most: Annotated[float, msgspec.Meta(gt=0)] | None = None
    needs: list[tuple[str, str, Annotated[int, msgspec.Meta(ge=0)]]] | None = None
    wait_at_most: Annotated[float, msgspec.Meta(gt=0)] | None = None


def push_of(row: StoredRow, runtime: Runtime) -> OutboxPush:
    """The row as the relay's script takes it; DecodeError, ValueError or TypeError say why it cannot be read."""
    payload = row.payload.encode()
    if head_of(payload).jid != row.jid:
        raise ValueError(f"its payload has the jid {head_of(payload).jid}")
    meta: dict[str, Any] = msgspec.json.decode(row.meta, type=dict) if row.meta else {}
    delay = float(meta.get("delay") or 0)
    if "deadline" in meta:
        now = runtime.clock.now()
        payload = with_deadline(payload, max(now + delay, row.due or now) + float(meta["deadline"]))
    when = repr(float(row.due)) if row.due is not None else f"+{delay!r}" if delay > 0 else ""
    detail = record_of(runtime.registry, payload)[1] if meta.get("track") else b""
    ask = msgspec.json.encode(msgspec.convert(meta["ask"], _Ask)) if "ask" in meta else b""
    if not when and not ask and not meta.get("parked"):
        payload = payload[: payload.rindex(b"}")] + b',"enqueued_at":%b}' % runtime.stamp(runtime.clock.now())
    when = f"parked{when}" if meta.get("parked") else when
    batch, member = str(meta.get("batch") or ""), str(meta.get("member") or "")
    return OutboxPush(row.jid, row.line or "", row.queue, when, payload, batch, member, detail, ask)


def rows_of(
    plan: PreparedPush,
    scheduled: bool,
    by_queue: Mapping[str, Sequence[bytes]],
    created: float,
    questions: Mapping[str, bytes],
) -> list[Row]:
    """The rows of one push. ``created``: Unix time; ``questions``: by jid what the server is asked about a key."""
    meta = _meta(plan, scheduled)
    shared = {"due": plan.at if scheduled else None, "line": plan.line, "created": created}
    return [
        {"jid": jid, "queue": queue, "payload": payload.decode(), "meta": _text(meta, questions.get(jid)), **shared}
        for queue, payloads in by_queue.items()
        for jid, payload in ((head_of(payload).jid, payload) for payload in payloads)
    ]


def _text(meta: Mapping[str, Any], question: bytes | None) -> str | None:
    said = {**meta, "ask": msgspec.Raw(question)} if question else meta
    return msgspec.json.encode(said).decode() if said else None


def _meta(plan: PreparedPush, scheduled: bool) -> dict[str, Any]:
    """What the push of every row must know beside the payload."""
    group = plan.group
    meta: dict[str, Any] = {}
    if scheduled and plan.at is None:
        meta["delay"] = plan.delay
    if plan.deadline is not None:
        meta["deadline"] = plan.deadline
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


def insert_by_cursor(connection: Any, rows: Sequence[Row], committed: Callable[[], None]) -> None:
    """Write rows through a connection of Django (``vendor``, ``cursor()``), as a part of its transaction; ``committed``
    is called after its commit. OutboxError says what to do when the table or a right on it is missing."""
    vendor = str(connection.vendor)
    if vendor not in (*_LOCKS, "sqlite"):
        raise OutboxError(f"an outbox lives in PostgreSQL, MySQL, MariaDB or SQLite, not in {vendor}")
    user = str(getattr(connection, "settings_dict", {}).get("USER") or "of this connection")
    with _naming_table(connection), naming_rights(OutboxError, _INSERT, user), connection.cursor() as cursor:
        for line in lines_of(rows) if vendor in _LOCKS else ():
            cursor.execute(_LOCKS[vendor], [line_lock(line) if vendor == "postgresql" else line])
        cursor.executemany(_INSERT, [[row[name] for name in COLUMNS] for row in rows])
    if connection.in_atomic_block or connection.get_autocommit():  # on_commit refuses what is begun by hand
        last = connection.run_on_commit[-1:]
        if not last or last[0][:2] != (set(connection.savepoint_ids), committed):
            connection.on_commit(committed, robust=True)


@contextmanager
def _naming_table(connection: Any) -> Iterator[None]:
    """OutboxError, which names the command, for an error that tells of a table that is not there."""
    try:
        yield
    except OutboxError:
        raise
    except Exception as error:
        cause: Any = error.__cause__ or error
        state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
        code = cause.args[0] if cause.args else None
        if state == "42P01" or code == 1146 or (connection.vendor == "sqlite" and "no such table" in str(cause)):
            alias = connection.alias
            raise OutboxError(
                f'the database {alias!r} has no tables of the outbox: with "henchman.outbox" in INSTALLED_APPS, run '
                f"manage.py migrate henchman_outbox --database {alias}"
            ) from error
        raise
