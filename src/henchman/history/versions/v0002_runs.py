"""A run is told by the change that ended it: the table of runs becomes a view, and one row less is written for each.

An index that another one can stand in for goes, too; and PostgreSQL compares ids and names byte by byte from now on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from alembic import op
from sqlalchemy import BigInteger, Column, Double, Integer, String

revision = "0002"
down_revision: str | None = "0001"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None

_CHANGES, _RUNS = "henchman_changes", "henchman_runs"
_NEW = {"started": Double(), "elapsed": Double(), "ending": String(20)}
_BYTE_BY_BYTE = {
    "batches": {"id": 100},
    "events": {"jid": 100, "batch": 100, "class": 255, "status": 20},
    "changes": {"jid": 100},
    "messages": {"jid": 100},
}
#: a run is an end that knows when it began; or it began, and what came next (if anything) did not know of it
_VIEW = f"""
CREATE VIEW {_RUNS} AS
SELECT c.jid AS jid, c.sid AS run, c.attempt AS attempt, c.process AS process,
    COALESCE(c.started, c.at) AS started,
    CASE WHEN c.status = 'working' THEN n.at ELSE c.at END AS ended,
    CASE WHEN c.status = 'working' THEN COALESCE(n.ending, n.status) ELSE COALESCE(c.ending, c.status) END AS ending
FROM {_CHANGES} c
LEFT JOIN {_CHANGES} n ON c.status = 'working' AND n.jid = c.jid AND n.status <> 'working'
    AND n.sid = (SELECT MIN(x.sid) FROM {_CHANGES} x WHERE x.jid = c.jid AND x.sid > c.sid)
WHERE (c.status = 'working' AND n.started IS NULL) OR (c.status <> 'working' AND c.started IS NOT NULL)
"""  # noqa: S608


def _compare(bytewise: bool) -> None:
    if op.get_bind().dialect.name != "postgresql":
        return
    for table, columns in _BYTE_BY_BYTE.items():
        for name, length in columns.items():
            kind = String(length, collation="C" if bytewise else "default")
            op.alter_column(f"henchman_{table}", name, type_=kind, existing_type=String(length))


def upgrade() -> None:
    """Carry what the old runs tell into the changes that ended them."""
    for name, kind in _NEW.items():
        op.add_column(_CHANGES, Column(name, kind))
    of_the_change = f"FROM {_RUNS} r WHERE r.jid = {_CHANGES}.jid AND r.ended = {_CHANGES}.at"
    op.execute(
        f"UPDATE {_CHANGES} SET started = (SELECT MAX(r.started) {of_the_change}), "  # noqa: S608
        f"ending = (SELECT MAX(r.ending) {of_the_change}) WHERE status <> 'working'"
    )
    op.drop_table(_RUNS)
    op.drop_index("henchman_events_batch", "henchman_events")
    _compare(bytewise=True)
    op.execute(_VIEW)


def downgrade() -> None:
    """The table again, out of the view."""
    old = f"{_RUNS}_of_changes"
    columns: list[Any] = [
        Column("jid", String(100), primary_key=True),
        Column("run", BigInteger(), primary_key=True, autoincrement=False),
        *(Column("attempt", Integer()), Column("process", String(255)), Column("host", String(255))),
        *(Column("started", Double()), Column("ended", Double()), Column("ending", String(20))),
    ]
    op.create_table(old, *columns)
    shared = "jid, run, attempt, process, started, ended, ending"
    op.execute(f"INSERT INTO {old} ({shared}) SELECT {shared} FROM {_RUNS}")  # noqa: S608
    op.execute(f"DROP VIEW {_RUNS}")
    op.rename_table(old, _RUNS)
    for name in _NEW:
        op.drop_column(_CHANGES, name)
    op.create_index("henchman_events_batch", "henchman_events", ["batch", "born"])
    _compare(bytewise=False)
