"""The first tables. They stand here as they were made then: ``schema.py`` goes on, a script never changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, Double, Integer, String, Text
from sqlalchemy.dialects import mysql

revision = "0001"
down_revision: str | None = None
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_LONG = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
_KEY, _NAME, _WORD, _STREAM_ID = String(100), String(255), String(20), String(60)
_OPTIONS: dict[str, Any] = {
    f"{product}_{name}": value
    for product in ("mysql", "mariadb")
    for name, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", "utf8mb4_bin"))
}

_ONE_TREE = ("runs", "changes", "messages")  # of SQLite
#: table → primary key, other columns that are never null, the rest; in order
_TABLES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "batches": (
        {"id": _KEY},
        {},
        {"description": _LONG, "tags": _LONG, "state": _WORD, "why": _WORD, "parent": _KEY, "created": Double()}
        | {"closed": Double(), "completed": Double(), "expires": Double(), "generation": Integer(), "total": Integer()}
        | {"counts": _LONG},
    ),
    "events": (
        {"jid": _KEY},
        {},
        {"batch": _KEY, "class": _NAME, "queue": _NAME, "args": _LONG, "kwargs": _LONG, "tags": _LONG, "status": _WORD}
        | {"attempts": Integer(), "enqueued_at": Double(), "started_at": Double(), "ended_at": Double()}
        | {"result": _LONG, "error_class": _NAME, "message": _LONG, "traceback": _LONG, "progress_done": Double()}
        | {"progress_total": Double(), "process": _NAME, "host": _NAME},
    ),
    "runs": (
        {"jid": _KEY, "run": BigInteger()},
        {},
        {
            "attempt": Integer(),
            "process": _NAME,
            "host": _NAME,
            "started": Double(),
            "ended": Double(),
            "ending": _WORD,
        },
    ),
    "changes": (
        {"jid": _KEY, "sid": BigInteger()},
        {},
        {"batch": _KEY, "status": _WORD, "attempt": Integer(), "process": _NAME, "at": Double()} | {"detail": _LONG},
    ),
    "messages": ({"jid": _KEY, "sid": BigInteger()}, {}, {"batch": _KEY, "at": Double(), "text": _LONG}),
    "position": (
        {"id": Integer()},
        {"stream": _NAME, "at": _STREAM_ID, "highest": BigInteger(), "updated": Double()},
        {},
    ),
}
_LAST = {"batches": {"changed": BigInteger()}, "events": {"born": BigInteger(), "changed": BigInteger()}}
_INDEXES = {
    "batches_changed": ("batches", ["changed"]),
    "events_page": ("events", ["batch", "status", "born"]),
    "events_batch": ("events", ["batch", "born"]),
    "events_changed": ("events", ["batch", "changed"]),
    "events_class": ("events", ["class", "born"]),
    "events_status": ("events", ["status", "born"]),
}


def upgrade() -> None:
    """Make every table and index."""
    for name, (key, needed, rest) in _TABLES.items():
        columns: list[Any] = [Column(one, kind, primary_key=True, autoincrement=False) for one, kind in key.items()]
        columns += [Column(one, kind, nullable=False) for one, kind in needed.items()]
        columns += [Column(one, kind) for one, kind in rest.items()]
        columns += [Column(one, kind, nullable=False) for one, kind in _LAST.get(name, {}).items()]
        op.create_table(f"henchman_{name}", *columns, sqlite_with_rowid=name not in _ONE_TREE, **_OPTIONS)
    for name, (table, index) in _INDEXES.items():
        op.create_index(f"henchman_{name}", f"henchman_{table}", index)


def downgrade() -> None:
    """Remove them, with all that they hold."""
    for name in _TABLES:
        op.drop_table(f"henchman_{name}")
