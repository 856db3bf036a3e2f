"""The schema's version: which one the database has, which one this release needs, and the way there (Alembic).

Alembic's scripts lie in ``versions/`` of the installed package; nobody needs an ``alembic.ini``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from henchman.errors import HistoryAway, HistoryError
from henchman.history.database import Database
from henchman.history.schema import METADATA, VERSION_TABLE

__all__ = ["Version", "current", "insist", "upgrade"]

_HERE = Path(__file__).parent
_LOCK = 4_871_690_241  # any number that nobody else takes for an advisory lock
_WAIT = 60  # seconds that one upgrade waits for another


class Version(NamedTuple):
    """``found`` is what the database has, empty when it has nothing of ours."""

    found: str
    needed: str

    @property
    def fits(self) -> bool:
        """Whether this release can read and write it."""
        return self.found == self.needed


def _scripts() -> tuple[Config, ScriptDirectory]:
    config = Config()
    config.set_main_option("script_location", str(_HERE).replace("%", "%%"))
    return config, ScriptDirectory.from_config(config)


def _found(connection: Connection) -> str:
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    return context.get_current_revision() or ""


def current(database: Database) -> Version:
    """Which version is there; HistoryAway when the database is not."""
    needed = _scripts()[1].get_current_head() or ""
    file = database.file
    if file is not None and not file.exists():
        return Version("", needed)
    with database.reading() as connection:
        return Version(_found(connection), needed)


def upgrade(database: Database) -> Version:
    """Bring the database to the version of this release; HistoryError when it is a newer one's. Safe to do twice."""
    config, scripts = _scripts()
    if database.file is not None:
        try:
            database.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise HistoryAway(f"{database.file}: its folder cannot be made ({error}); set database_url") from None
    with _alone(database), database.writing() as connection:
        if database.kind == "postgresql":
            connection.execute(text(f"SELECT pg_advisory_xact_lock({_LOCK})"))
        _known(_found(connection), scripts, database)
        with EnvironmentContext(config, scripts, fn=_steps(scripts)) as environment:
            environment.configure(
                connection=connection,
                target_metadata=METADATA,
                version_table=VERSION_TABLE,
                transactional_ddl=database.kind != "mysql",
            )
            environment.run_migrations()
    return current(database)


def _steps(scripts: ScriptDirectory) -> Any:
    return lambda revision, context: scripts._upgrade_revs("head", revision)


@contextmanager
def _alone(database: Database) -> Iterator[None]:
    """Two that upgrade at once go one after the other. MySQL's lock belongs to a session, and is held until after the
    commit; PostgreSQL's belongs to the transaction; SQLite's writers wait for each other in any case."""
    if database.kind != "mysql":
        yield
        return
    with database.reading() as keeper:
        if keeper.execute(text(f"SELECT GET_LOCK('henchman_version', {_WAIT})")).scalar() != 1:
            raise HistoryAway(f"somebody else has been changing the schema for {_WAIT} s")
        try:
            yield
        finally:
            keeper.execute(text("SELECT RELEASE_LOCK('henchman_version')"))


def _known(found: str, scripts: ScriptDirectory, database: Database) -> None:
    if found and found not in {one.revision for one in scripts.walk_revisions()}:
        raise HistoryError(
            f"{database.shown} was made by a newer Henchman (schema {found}): install that one, or another database"
        )


def insist(database: Database) -> None:
    """Upgrade SQLite as needed; HistoryError when another database has not been upgraded by a person."""
    version = current(database)
    if version.fits:
        return
    if database.kind == "sqlite":
        upgrade(database)
        return
    has = f"schema {version.found}" if version.found else "no tables of Henchman"
    raise HistoryError(f"{database.shown} has {has}, and schema {version.needed} is needed: henchman db upgrade")
