"""The outbox's own way into the application's database, for the relay and upgrades: never the application's pool."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import event, select, update

from henchman.errors import OutboxAway, OutboxError
from henchman.outbox.schema import METADATA, VERSION_TABLE, marker
from henchman.sql.database import Purpose, SqlDatabase

__all__ = ["Marker", "OutboxDatabase"]

_REMOTE = frozenset({"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "fuse.glusterfs", "ceph", "lustre"})


class Marker(NamedTuple):
    """``name`` of the outbox, drawn when its tables were made; ``namespace`` whose relay it belongs to, None: nobody's
    yet."""

    name: str
    namespace: str | None


class OutboxDatabase(SqlDatabase):
    """One database with an outbox; ``upgrade_by`` is the command that makes its tables. OutboxError when it is a SQLite
    file on a network file system."""

    purpose = Purpose(
        folder=Path(__file__).parent,
        version_table=VERSION_TABLE,
        metadata=METADATA,
        pragmas=("busy_timeout=5000", "synchronous=FULL"),  # the file is the application's: its journal is as it chose
        away=OutboxAway,
        refused=OutboxError,
        lock=4_871_690_242,
        absent="there is no outbox yet: {file} comes with the application's first transaction",
        setting="outbox",
        upgrade="henchman db upgrade --outbox URL",
    )

    def __init__(self, address: str, upgrade_by: str = "") -> None:
        super().__init__(address)
        self.upgrade_by = upgrade_by or self.purpose.upgrade
        if self.file is not None and (kind := _file_system(self.file)) in _REMOTE:
            raise OutboxError(f"{self.shown} lies on a network file system ({kind}), which SQLite's locks do not reach")
        if self.kind == "postgresql":
            event.listen(self.engine, "connect", _commits_are_written)

    def marker(self) -> Marker:
        """The marker row; OutboxError when the tables were made without it, or are not those of this release."""
        try:
            with self.reading() as connection:
                row = connection.execute(select(marker.c.name, marker.c.namespace).where(marker.c.id == 1)).first()
        except OutboxError as error:
            if not isinstance(error, OutboxAway):
                self.check_schema()  # says what to do
            raise
        if row is None:
            raise OutboxError(
                f"{self.shown}: henchman_outbox_marker has no row; was it emptied? Restore it: id 1, a name"
            )
        return Marker(row.name, row.namespace)

    def claim(self, namespace: str) -> Marker:
        """The marker row, which belongs to ``namespace`` from now on; OutboxError when it is another's."""
        found = self.marker()
        if found.namespace is None:
            with self.writing() as connection:
                mine = update(marker).where(marker.c.id == 1, marker.c.namespace.is_(None)).values(namespace=namespace)
                connection.execute(mine)
            found = self.marker()
        if found.namespace != namespace:
            raise OutboxError(
                f"{self.shown}: this outbox belongs to the namespace {found.namespace!r}, not to {namespace!r}: "
                "two relays would push every job twice. Use the same namespace, or another database"
            )
        return found


def _file_system(file: Path) -> str:
    """The kind of file system that ``file`` is to lie on; "" where Linux does not say it."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text(errors="replace").splitlines()]
        place = str(file.resolve())
    except OSError:
        return ""
    found = max(
        (one for one in mounts if len(one) > 2 and (place + "/").startswith(one[1].rstrip("/") + "/")),
        key=lambda one: len(one[1]),
        default=["", "", ""],
    )
    return found[2]


def _commits_are_written(raw: Any, record: Any) -> None:
    """A deletion that PostgreSQL forgets after its commit (``synchronous_commit = off``) would bring its job back."""
    autocommit, raw.autocommit = raw.autocommit, True
    try:
        cursor = raw.cursor()
        cursor.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        cursor.close()
    finally:
        raw.autocommit = autocommit
