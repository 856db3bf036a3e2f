"""The database as SQLAlchemy sees it: one engine, how each product is spoken to, and its errors as ours.

SQLite gets a write-ahead log (who reads never waits for the recorder), full syncing (what was taken out of the stream
is on the disk) and transactions that begin where we say. Writing transactions take SQLite's lock at their start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)

from henchman.errors import ConfigError, HistoryAway, HistoryError
from henchman.kernel.text import mask_url, shorten, unquoted_login

__all__ = ["Database"]

_DRIVERS = {
    "sqlite": ("sqlite", "sql"),
    "postgres": ("postgresql+psycopg", "postgresql"),
    "postgresql": ("postgresql+psycopg", "postgresql"),
    "mysql": ("mysql+pymysql", "mysql"),
    "mariadb": ("mariadb+pymysql", "mysql"),
}
_PRAGMAS = (
    "busy_timeout=15000",  # ms that one writer waits for another
    "journal_mode=WAL",
    "synchronous=FULL",
    "cache_size=-32000",  # KB
    "wal_autocheckpoint=8000",  # pages; the default is passed by every chunk
)


class Database:
    """One database; connections are made when they are used. ConfigError when its driver is not installed."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.shown = mask_url(address)
        try:
            url = make_url(address)
        except (ArgumentError, ValueError) as error:  # what they say may quote the address
            why = unquoted_login(address) or "the form is postgresql://user:password@host/name"
            raise ConfigError(f"{self.shown} cannot be read: {why}") from error
        if "@" in (url.host or ""):
            raise ConfigError(f"{self.shown} cannot be read: an @ in a user or password is written as %40")
        product = url.drivername.partition("+")[0].lower()
        driver, extra = _DRIVERS[product]
        if "+" not in url.drivername:
            url = url.set(drivername=driver)
        self.kind = "mysql" if product == "mariadb" else "postgresql" if product == "postgres" else product
        try:
            self.engine = create_engine(url, **self._options(url))
        except (ImportError, NoSuchModuleError) as error:
            raise ConfigError(f"{self.shown} needs a driver: pip install 'henchman[{extra}]' ({error})") from error
        if self.kind == "sqlite":
            _as_we_need(self.engine, url)

    def _options(self, url: URL) -> dict[str, Any]:
        if self.kind == "sqlite":
            return {}
        limits = {"connect_timeout": 5}
        if self.kind == "mysql":
            return {"pool_pre_ping": True, "connect_args": limits | {"charset": "utf8mb4", "read_timeout": 60}}
        return {"pool_pre_ping": True, "connect_args": limits}

    @property
    def file(self) -> Path | None:
        """The file of a SQLite database."""
        name = self.engine.url.database
        return Path(name) if self.kind == "sqlite" and name and name != ":memory:" else None

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction that writes; HistoryAway when the database is not there, HistoryError when it refuses."""
        with self._told(), self.engine.execution_options(henchman_writes=True).begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One transaction that only reads; it changes nothing, and makes no SQLite file."""
        file = self.file
        if file is not None and not file.exists():
            raise HistoryAway(f"there is no history yet: {file} comes with the first worker that records")
        with self._told(), self.engine.connect() as connection:
            yield connection

    def close(self) -> None:
        """Close every idle connection."""
        self.engine.dispose()

    @contextmanager
    def _told(self) -> Iterator[None]:
        driver = self.engine.dialect.loaded_dbapi.Error
        try:
            yield
        except (SQLAlchemyError, driver) as raised:  # the driver's own: of COPY, which goes by SQLAlchemy
            error: Any = raised
            if isinstance(raised, driver):
                error = DBAPIError.instance(None, None, raised, driver, dialect=self.engine.dialect)
            cause = getattr(error, "orig", None) or error
            text = f"{self.shown}: {shorten(' '.join(str(cause).split()), 400)}"
            raise (HistoryAway if _is_away(error, self.kind) else HistoryError)(text) from error


def _is_away(error: SQLAlchemyError, kind: str) -> bool:
    """Whether the database is not there, or busy, or stops: another try may go well."""
    if isinstance(error, InterfaceError):
        return True
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    if kind == "postgresql":  # no SQLSTATE: it never answered; 08, 53, 57: connection, resources, shutdown; 40: again
        state = getattr(error.orig, "sqlstate", None)
        return isinstance(error, OperationalError) and (state is None or state[:2] in ("08", "53", "57", "40", "55"))
    if kind == "mysql":
        return isinstance(error, OperationalError) and error.orig is not None and error.orig.args[:1] != (1153,)
    return isinstance(error, OperationalError) and any(
        word in str(error.orig) for word in ("locked", "unable to open", "disk I/O", "full", "readonly")
    )


def _as_we_need(engine: Engine, url: URL) -> None:
    """The driver begins no transaction of its own accord; we do."""

    @event.listens_for(engine, "do_connect")
    def connecting(*details: Any) -> None:
        """In a folder that is closed to others (the embedded server's) the file is made so too, whatever the umask."""
        file = Path(url.database or "")
        with suppress(OSError):
            if file.is_absolute() and not file.exists() and not file.parent.stat().st_mode & 0o077:
                os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
                file.chmod(0o600)

    @event.listens_for(engine, "connect")
    def connected(raw: Any, record: Any) -> None:
        raw.isolation_level = None
        for pragma in _PRAGMAS:
            raw.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get("henchman_writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
