"""Private database servers for tests: PostgreSQL and MariaDB of Debian, each in its own folder, gone with the test.

They refuse to run as root: then they run as the user that their package made.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from henchman.errors import HistoryError
from henchman.history.database import Database
from support.server import DIE_WITH_PARENT

__all__ = ["SERVERS", "DatabaseServer", "MariaDB", "PostgreSQL", "available", "emptied", "running"]


def _program(name: str) -> str:
    """The path of a server's program; empty when it is not installed."""
    versions = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return (
        shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", *map(str, versions)])) or ""
    )


#: PyMySQL leaves the socket of a connection that did not come about to the garbage collector
LEFT = "ignore:Exception ignored in. <socket.socket:pytest.PytestUnraisableExceptionWarning"


class DatabaseServer:
    """A server that can be killed and started again on the same data. ``url`` is for ``database_url``."""

    program = ""
    user = ""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="hm-db-", dir="/tmp"))
        self._process: subprocess.Popen[bytes] | None = None
        self._be: list[str] = []
        # Temporary tables of MariaDB are named by its process: two that share /tmp remove each other's.
        self._env = os.environ | {"TMPDIR": str(self.folder)}
        if os.geteuid() == 0:
            entry = pwd.getpwnam(self.user)
            os.chown(self.folder, entry.pw_uid, entry.pw_gid)
            self._be = ["setpriv", f"--reuid={entry.pw_uid}", f"--regid={entry.pw_gid}", "--clear-groups"]

    @property
    def url(self) -> str:
        raise NotImplementedError

    def install(self) -> None:
        """Make the data."""
        raise NotImplementedError

    def command(self) -> list[str]:
        """The server's own command."""
        raise NotImplementedError

    def run(self, *command: str) -> None:
        command = (*self._be, *command)
        done = subprocess.run(command, cwd=self.folder, env=self._env, capture_output=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]

    def start(self) -> None:
        """Start it and wait until it answers. What a killed one has left behind ends a moment later, and keeps the
        place taken until then."""
        log = self.folder / "log"
        end = time.monotonic() + 60
        while not self._answers(log, end):
            tail = log.read_text(errors="replace")[-2000:]
            if "is still in use" not in tail[-500:] or time.monotonic() > end:
                self.stop()
                raise RuntimeError(f"{self.program} did not start:\n{tail}")

    def _answers(self, log: Path, end: float) -> bool:
        """Start it; whether it answers before it has ended, or ``end``."""
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [*self._be, sys.executable, "-ISc", DIE_WITH_PARENT, *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
                cwd=self.folder,
                env=self._env,
            )
        while time.monotonic() < end and self._process.poll() is None:
            database = Database(self.url)
            try:
                with database.reading() as connection:
                    connection.execute(text("SELECT 1"))
                return True
            except (HistoryError, SQLAlchemyError):
                time.sleep(0.05)  # between two looks at the fact we wait for
            finally:
                database.close()
        return False

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=60)

    def stop(self) -> None:
        """End it and remove its data."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


class PostgreSQL(DatabaseServer):
    program = "postgres"
    user = "postgres"

    @property
    def url(self) -> str:
        return f"postgresql://tester@/postgres?host={self.folder}"

    def install(self) -> None:
        data = str(self.folder / "data")
        self.run(_program("initdb"), "-D", data, "-U", "tester", "-A", "trust", "-E", "UTF8", "--no-sync")

    def command(self) -> list[str]:
        settings = {"listen_addresses": "", "unix_socket_directories": str(self.folder), "max_connections": "100"}
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return [_program(self.program), "-D", str(self.folder / "data"), *options]


class MariaDB(DatabaseServer):
    program = "mariadbd"
    user = "mysql"

    @property
    def url(self) -> str:
        return f"mysql://tester@localhost/history?unix_socket={self.folder}/s"

    def install(self) -> None:
        data = f"--datadir={self.folder}/data"
        plain = ["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]
        self.run(_program("mariadb-install-db"), *plain, data)
        made = self.folder / "init.sql"
        made.write_text(
            "CREATE DATABASE IF NOT EXISTS history;\nCREATE USER IF NOT EXISTS tester@localhost;\n"
            "GRANT ALL ON history.* TO tester@localhost WITH GRANT OPTION;\n"
            "GRANT CREATE USER ON *.* TO tester@localhost;\n"
        )
        made.chmod(0o644)

    def command(self) -> list[str]:
        places = {"datadir": "data", "socket": "s", "pid-file": "pid", "init-file": "init.sql"}
        options = [f"--{name}={self.folder / place}" for name, place in places.items()]
        return [_program(self.program), "--no-defaults", "--skip-networking", "--max-allowed-packet=64M", *options]


def available(kind: type[DatabaseServer]) -> bool:
    """Whether this server is installed."""
    return bool(_program(kind.program))


@contextmanager
def running(kind: type[DatabaseServer]) -> Iterator[DatabaseServer]:
    """A server for the length of a block."""
    server = kind()
    try:
        server.install()
        server.start()
        yield server
    finally:
        server.stop()


def emptied(url: str) -> None:
    """Remove every table of Henchman."""
    database = Database(url)
    names = ("batches", "events", "changes", "messages", "position", "version")
    try:
        with database.writing() as connection:
            connection.execute(text("DROP VIEW IF EXISTS henchman_runs"))
            for name in names:
                connection.execute(text(f"DROP TABLE IF EXISTS henchman_{name}"))
    finally:
        database.close()


#: those that tests start, by name
SERVERS: dict[str, type[DatabaseServer]] = {"postgresql": PostgreSQL, "mariadb": MariaDB}
