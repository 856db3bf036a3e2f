"""The first tables. They stand here as they were made then: ``schema.py`` goes on, a script never changes.

Its revision and its label are of a branch of their own, so that ``versions/`` may also stand among the
``version_locations`` of an application's own Alembic: ``alembic upgrade henchman_outbox@head``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, Double, Integer, MetaData, String, Table, Text
from sqlalchemy.dialects import mysql

revision = "hm_outbox_0001"
down_revision: str | None = None
branch_labels: str | Sequence[str] | None = ("henchman_outbox",)
depends_on: str | Sequence[str] | None = None

_LONG = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
_OPTIONS: dict[str, Any] = {
    f"{product}_{name}": value
    for product in ("mysql", "mariadb")
    for name, value in (("engine", "InnoDB"), ("charset", "utf8mb4"), ("collate", "utf8mb4_bin"))
}


def _plain(length: int) -> String:
    return String(length).with_variant(String(length, collation="C"), "postgresql")


def upgrade() -> None:
    """Make the tables, and draw the name of this outbox."""
    op.create_table(
        "henchman_outbox",
        Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
        Column("jid", _plain(100), nullable=False, unique=True),
        Column("queue", String(255), nullable=False),
        Column("payload", _LONG, nullable=False),
        Column("due", Double),
        Column("meta", _LONG),
        Column("line", _plain(64)),
        Column("created", Double, nullable=False),
        Column("problem", String(500)),
        sqlite_autoincrement=True,
        **_OPTIONS,
    )
    op.create_index("henchman_outbox_by_line", "henchman_outbox", ["line", "id"])
    op.create_table(
        "henchman_outbox_line",
        Column("line", _plain(64), primary_key=True),
        Column("turn", BigInteger, nullable=False),
        **_OPTIONS,
    )
    op.create_table("henchman_outbox_marker", *_marker(), **_OPTIONS)
    op.execute(Table("henchman_outbox_marker", MetaData(), *_marker()).insert().values(id=1, name=os.urandom(16).hex()))
    if op.get_bind().dialect.name == "postgresql":  # every row is deleted soon: the default waits for a fifth of them
        op.execute(
            "ALTER TABLE henchman_outbox SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000)"
        )


def _marker() -> list[Any]:
    return [
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("name", String(32), nullable=False),
        Column("namespace", String(255)),
    ]


def downgrade() -> None:
    """Remove them, with all that waits there."""
    for name in ("henchman_outbox_marker", "henchman_outbox_line", "henchman_outbox"):
        op.drop_table(name)
