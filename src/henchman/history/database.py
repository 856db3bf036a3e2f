"""The database of history: its tables, its pragmas, its errors.

SQLite gets a write-ahead log (readers never wait for the recorder) and full syncing (what has left the stream is on the
disk).
"""

from __future__ import annotations

from pathlib import Path

from henchman.errors import HistoryAway, HistoryError
from henchman.history.schema import METADATA, VERSION_TABLE
from henchman.sql.database import Purpose, SqlDatabase, Version

__all__ = ["Database", "Version"]


class Database(SqlDatabase):
    """One database that keeps history."""

    purpose = Purpose(
        folder=Path(__file__).parent,
        version_table=VERSION_TABLE,
        metadata=METADATA,
        pragmas=(
            "busy_timeout=15000",  # ms that one writer waits for another
            "journal_mode=WAL",
            "synchronous=FULL",
            "cache_size=-32000",  # KB
            "wal_autocheckpoint=8000",  # pages; the default is passed by every chunk
        ),
        away=HistoryAway,
        refused=HistoryError,
        lock=4_871_690_241,
        absent="there is no history yet: {file} comes with the first worker that records",
        setting="database_url",
        upgrade="henchman db upgrade",
    )
