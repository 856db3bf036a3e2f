"""A database as SQLAlchemy sees it: one engine, what each product needs, our errors, the schema's version.

On SQLite transactions begin where we say, and those that write take its lock at their start. The ``Purpose`` of a
database names its tables, pragmas, errors and Alembic's scripts, which lie in ``versions/`` of a room; no
``alembic.ini`` is needed.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import URL, Connection, Engine, MetaData, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    NoSuchModuleError,
    OperationalError,
    SQLAlchemyError,
)

from henchman.errors import ConfigError, HenchmanError
from henchman.kernel.text import mask_url, shorten, unquoted_login
from henchman.sql.rights import missing_right

__all__ = ["Purpose", "SqlDatabase", "Version"]

_DRIVERS = {
    "sqlite": ("sqlite", "sql"),
    "postgres": ("postgresql+psycopg", "postgresql"),
    "postgresql": ("postgresql+psycopg", "postgresql"),
    "mysql": ("mysql+pymysql", "mysql"),
    "mariadb": ("mariadb+pymysql", "mysql"),
}
_CONNECT = 5  # seconds for a connection, its greeting and its login
_ANSWER = 60  # seconds for one answer of MySQL; PostgreSQL's host is asked whether it lives
_WAIT = 60  # seconds that one upgrade waits for another


class Purpose(NamedTuple):
    """What a room keeps in a database. ``folder``: that of its room, with ``versions/``. ``away``: the error for a
    database that another try may reach; ``refused``: the one for everything else. ``lock``: a number of its own among
    PostgreSQL's advisory locks. ``absent``: what to say in front of a SQLite file that is not there; ``setting``: what
    names another one; ``upgrade``: the command that makes the tables."""

    folder: Path
    version_table: str
    metadata: MetaData
    pragmas: tuple[str, ...]
    away: type[HenchmanError]
    refused: type[HenchmanError]
    lock: int
    absent: str
    setting: str
    upgrade: str


class Version(NamedTuple):
    """``found`` is the schema of the database, empty when it has nothing of ours; ``needed`` that of this release."""

    found: str
    needed: str

    @property
    def fits(self) -> bool:
        """Whether this release can read and write it."""
        return self.found == self.needed


class SqlDatabase:
    """One database; connections are made when they are used. ConfigError when its driver is not installed."""

    purpose: ClassVar[Purpose]

    def __init__(self, address: str) -> None:
        self.address = address
        self.shown = mask_url(address)
        self.upgrade_by = self.purpose.upgrade
        try:
            url = make_url(address)
        except (ArgumentError, ValueError) as error:  # their texts may quote the address
            why = unquoted_login(address) or "the form is postgresql://user:password@host/name"
            raise ConfigError(f"{self.shown} cannot be read: {why}") from error
        if "@" in (url.host or ""):
            raise ConfigError(f"{self.shown} cannot be read: an @ in a user or password is written as %40")
        product = url.drivername.partition("+")[0].lower()
        if product not in _DRIVERS:
            raise ConfigError(f"{self.shown}: it must be a database of {', '.join(_DRIVERS)}")
        driver, extra = _DRIVERS[product]
        if "+" not in url.drivername:
            url = url.set(drivername=driver)
        self.kind = "mysql" if product == "mariadb" else "postgresql" if product == "postgres" else product
        try:
            self.engine = create_engine(url, **self._options())
        except (ImportError, NoSuchModuleError) as error:
            raise ConfigError(f"{self.shown} needs a driver: pip install 'henchman[{extra}]' ({error})") from error
        if self.kind == "sqlite":
            _set_up_sqlite(self.engine, url, self.purpose.pragmas)
        if self.kind == "mysql" and self.engine.dialect.driver == "pymysql":
            event.listen(self.engine, "connect", _has_greeted)

    def _options(self) -> dict[str, Any]:
        more: dict[str, Any] = {}
        if self.kind == "sqlite":
            return more
        if self.kind == "mysql":  # the driver counts each part of a greeting as an answer
            more = {"charset": "utf8mb4", "read_timeout": _CONNECT, "write_timeout": _ANSWER}
        else:  # a host that is gone without a word is noticed within half a minute
            more = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3, "tcp_user_timeout": 30_000}
        return {"pool_pre_ping": True, "connect_args": {"connect_timeout": _CONNECT} | more}

    @property
    def file(self) -> Path | None:
        """The file of a SQLite database."""
        name = self.engine.url.database
        return Path(name) if self.kind == "sqlite" and name and name != ":memory:" else None

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """One transaction that writes; ``away`` when the database is not there, ``refused`` when it refuses."""
        with self._our_errors(), self.engine.execution_options(henchman_writes=True).begin() as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """One transaction that only reads; it changes nothing, and makes no SQLite file."""
        file = self.file
        if file is not None and not file.exists():
            raise self.purpose.away(self.purpose.absent.format(file=file))
        with self._our_errors(), self.engine.connect() as connection:
            yield connection

    def close(self) -> None:
        """Close every idle connection."""
        self.engine.dispose()

    def version(self) -> Version:
        """The schema's version; ``away`` when the database is not there."""
        needed = self._scripts()[1].get_current_head() or ""
        if self.file is not None and not self.file.exists():
            return Version("", needed)
        with self.reading() as connection:
            return Version(self._revision(connection), needed)

    def upgrade(self) -> Version:
        """Bring the schema to this release's version; ``refused`` when it is a newer one's. Safe to do twice."""
        purpose = self.purpose
        config, scripts = self._scripts()
        if self.file is not None:
            try:
                self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise purpose.away(f"{self.file}: its folder cannot be made ({error}); set {purpose.setting}") from None
        with self._upgrading_alone(), self.writing() as connection:
            if self.kind == "postgresql":
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({purpose.lock})")
            found = self._revision(connection)
            if found and found not in {one.revision for one in scripts.walk_revisions()}:
                raise purpose.refused(
                    f"{self.shown} was made by a newer Henchman (schema {found}): install that one, or another database"
                )
            with EnvironmentContext(config, scripts, fn=_steps(scripts)) as environment:
                environment.configure(
                    connection=connection,
                    target_metadata=purpose.metadata,
                    version_table=purpose.version_table,
                    transactional_ddl=self.kind != "mysql",
                )
                environment.run_migrations()
        return self.version()

    def require_schema(self) -> None:
        """Upgrade SQLite as needed; ``refused`` when another database has not been upgraded by a person."""
        if self.kind == "sqlite" and not self.version().fits:
            self.upgrade()
        self.check_schema()

    def check_schema(self) -> None:
        """``refused`` when the tables are not those of this release; it names the command that makes them."""
        version = self.version()
        if not version.fits:
            has = f"schema {version.found}" if version.found else "no tables of Henchman"
            needed = f"schema {version.needed} is needed: {self.upgrade_by}"
            raise self.purpose.refused(f"{self.shown} has {has}, and {needed}")

    @contextmanager
    def _upgrading_alone(self) -> Iterator[None]:
        """Two upgrades at once go one after the other. MySQL's lock belongs to a session, and is held until after the
        commit; PostgreSQL's belongs to the transaction; SQLite's writers wait for each other in any case."""
        if self.kind != "mysql":
            yield
            return
        with self.reading() as connection:
            if connection.exec_driver_sql(f"SELECT GET_LOCK('henchman_version', {_WAIT})").scalar() != 1:
                raise self.purpose.away(f"somebody else has been changing the schema for {_WAIT} s")
            try:
                yield
            finally:
                connection.exec_driver_sql("SELECT RELEASE_LOCK('henchman_version')")

    @contextmanager
    def _our_errors(self) -> Iterator[None]:
        driver = self.engine.dialect.loaded_dbapi.Error
        try:
            yield
        except (SQLAlchemyError, driver) as raised:  # the driver's own: of COPY, which bypasses SQLAlchemy
            error: Any = raised
            if isinstance(raised, driver):
                error = DBAPIError.instance(None, None, raised, driver, dialect=self.engine.dialect)
            cause = getattr(error, "orig", None) or error
            statement, user = getattr(error, "statement", None) or "", self.engine.url.username or "of this address"
            told = missing_right(error, statement, user) or shorten(" ".join(str(cause).split()), 400)
            text = f"{self.shown}: {told}"
            away, refused = self.purpose.away, self.purpose.refused
            raise (away if _is_away(error, self.kind) else refused)(text) from error
        except (OverflowError, struct.error) as error:  # a driver met a number that no column takes, or a bind
            raise self.purpose.refused(f"{self.shown}: {error}") from error

    def _scripts(self) -> tuple[Config, ScriptDirectory]:
        config = Config()
        config.set_main_option("script_location", str(self.purpose.folder).replace("%", "%%"))
        return config, ScriptDirectory.from_config(config)

    def _revision(self, connection: Connection) -> str:
        """The schema's version that the database names; empty when it names none."""
        context = MigrationContext.configure(connection, opts={"version_table": self.purpose.version_table})
        return context.get_current_revision() or ""


def _steps(scripts: ScriptDirectory) -> Any:
    return lambda revision, context: scripts._upgrade_revs("head", revision)


def _is_away(error: SQLAlchemyError, kind: str) -> bool:
    """Whether the database is away, busy or stopping: another try may succeed."""
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


def _has_greeted(raw: Any, record: Any) -> None:
    """A MySQL server that accepts a connection and says nothing is found out at once; a long answer may take longer."""
    raw._read_timeout = _ANSWER


def _set_up_sqlite(engine: Engine, url: URL, pragmas: tuple[str, ...]) -> None:
    """Pragmas, the file's mode, and transactions that we begin, not the driver."""

    @event.listens_for(engine, "do_connect")
    def connecting(*details: Any) -> None:
        """In a folder that is closed to others (the embedded server's) make the file so too, whatever the umask."""
        file = Path(url.database or "")
        with suppress(OSError):
            if file.is_absolute() and not file.exists() and not file.parent.stat().st_mode & 0o077:
                os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
                file.chmod(0o600)

    @event.listens_for(engine, "connect")
    def connected(raw: Any, record: Any) -> None:
        raw.isolation_level = None
        for pragma in pragmas:
            raw.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        writes = connection.get_execution_options().get("henchman_writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
