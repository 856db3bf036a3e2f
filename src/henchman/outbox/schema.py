"""The tables of the outbox, once for SQLite, PostgreSQL, MySQL and MariaDB. They stand in the application's database.

A program in another language may write a row: every column but ``id`` and those that may be null has to be given.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, Double, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.dialects import mysql

__all__ = ["METADATA", "VERSION_TABLE", "lines", "marker", "outbox"]

VERSION_TABLE = "henchman_outbox_version"

METADATA = MetaData()
_LONG = Text().with_variant(mysql.LONGTEXT(), "mysql", "mariadb")
_MYSQL = {"mysql_engine": "InnoDB", "mysql_charset": "utf8mb4", "mysql_collate": "utf8mb4_bin"}
_OPTIONS: dict[str, Any] = _MYSQL | {name.replace("mysql", "mariadb"): value for name, value in _MYSQL.items()}


def _plain(length: int) -> String:
    """Of what is compared: byte by byte, whatever the database's language."""
    return String(length).with_variant(String(length, collation="C"), "postgresql")


outbox = Table(
    "henchman_outbox",
    METADATA,
    Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("jid", _plain(100), nullable=False, unique=True),
    Column("queue", String(255), nullable=False),
    Column("payload", _LONG, nullable=False),  # JSON, without enqueued_at
    Column("due", Double),  # Unix time; null: at once, or after the delay in meta
    Column("meta", _LONG),  # JSON: delay, parked, batch, member, track
    Column("line", _plain(64)),  # rows of one line go in the order of their commits
    Column("created", Double, nullable=False),  # Unix time of the writer
    Column("problem", String(500)),  # by the relay: why the server refuses the row, which is stepped over
    Index("henchman_outbox_by_line", "line", "id"),
    sqlite_autoincrement=True,  # an id is never given out twice
    **_OPTIONS,
)

#: MySQL and MariaDB: the lock on its row makes the writers of a line wait for each other
lines = Table(
    "henchman_outbox_line",
    METADATA,
    Column("line", _plain(64), primary_key=True),
    Column("turn", BigInteger, nullable=False),
    **_OPTIONS,
)

marker = Table(
    "henchman_outbox_marker",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),  # always 1
    Column("name", String(32), nullable=False),  # drawn once: the relay's keys on the server hold it
    Column("namespace", String(255)),  # of the app whose relay came first; null before that
    **_OPTIONS,
)
