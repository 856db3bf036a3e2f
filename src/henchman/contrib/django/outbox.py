"""The outbox in a database of Django: ``HENCHMAN = {"outbox": "default"}`` names an alias of ``DATABASES``.

Jobs are rows that Django's own connection writes. The relay has a connection of its own, through SQLAlchemy: this
module gives it the address.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

from django.db import connections

from henchman.errors import ConfigError
from henchman.kernel.text import did_you_mean

__all__ = ["address_of", "check_alias", "migration"]

#: OPTIONS of PostgreSQL that Django keeps to itself, or that shape the application's queries; all others are libpq's
_DJANGOS = frozenset(
    {"autocommit", "client_encoding", "connection_factory", "context", "cursor_factory", "isolation_level", "pool"}
    | {"prepare_threshold", "row_factory", "server_side_binding"}
)
#: OPTIONS of MySQL by the name that the relay's driver has for them; those that only shape the application's queries
_OF_MYSQL = {"read_default_file": "read_default_file", "read_default_group": "read_default_group"}
_OF_MYSQL |= {"unix_socket": "unix_socket", "ssl": "ssl"}
_QUERIES_OF_MYSQL = frozenset(
    {"charset", "collation", "connect_timeout", "conv", "cursorclass", "init_command", "isolation_level"}
    | {"read_timeout", "sql_mode", "use_unicode", "write_timeout"}
)
_SSL = ("ca", "capath", "cert", "cipher", "key")


def migration(alias: str) -> str:
    """The command that makes the tables."""
    return f"manage.py migrate henchman_outbox --database {alias}"


def check_alias(alias: str, known: Mapping[str, Any]) -> None:
    """ConfigError when ``DATABASES`` of the settings has no ``alias``."""
    if alias not in known:
        names = ", ".join(map(repr, known)) or "none"
        raise ConfigError(
            f"outbox = {alias!r}: DATABASES has no such alias, only {names}{did_you_mean(alias, tuple(known))}"
        )


def address_of(alias: str) -> str:
    """The address of the database ``alias`` for the relay; ConfigError when it can have no outbox, or is not known."""
    check_alias(alias, connections.settings)
    connection = connections[alias]
    said = connection.settings_dict
    options = dict(said.get("OPTIONS") or {})
    if connection.vendor == "postgresql":
        return _postgresql(said, options)
    if connection.vendor == "mysql":
        return _mysql(alias, said, options)
    if connection.vendor == "sqlite":
        return _sqlite(alias, str(said["NAME"]))
    raise ConfigError(
        f"outbox = {alias!r}: an outbox lives in PostgreSQL, MySQL, MariaDB or SQLite, and ENGINE of this database is "
        f"{said['ENGINE']!r}"
    )


def _postgresql(said: Mapping[str, Any], options: dict[str, Any]) -> str:
    query = {name: str(value) for name, value in options.items() if name not in _DJANGOS and value is not None}
    if role := query.pop("assume_role", ""):  # Django says SET ROLE after it has connected
        query["options"] = f"{query.get('options', '')} -c role={role}".strip()
    if said["HOST"]:
        query["host"] = str(said["HOST"])
    if said["PORT"]:
        query["port"] = str(said["PORT"])
    return _written("postgresql", said, query)


def _mysql(alias: str, said: Mapping[str, Any], options: dict[str, Any]) -> str:
    query = {_OF_MYSQL[name]: options.pop(name) for name in _OF_MYSQL if name in options}
    ssl = query.pop("ssl", None) or {}
    unknown = sorted({*options} - _QUERIES_OF_MYSQL) + [f"ssl[{name!r}]" for name in ssl if name not in _SSL]
    if unknown:
        raise ConfigError(
            f"outbox = {alias!r}: the relay's driver, PyMySQL, has no like of {', '.join(unknown)} in OPTIONS; give "
            "the address in place of the alias, as in mysql://user@host/name?ssl_ca=…"
        )
    query |= {f"ssl_{name}": value for name, value in ssl.items()}
    host, place = str(said["HOST"]), ""
    if host.startswith("/"):
        query["unix_socket"] = host
    elif host:
        place = f"[{host}]" if ":" in host else quote(host)
    if said["PORT"] and place:
        place += f":{said['PORT']}"
    return _written("mysql", said, query, place or "localhost")


def _written(scheme: str, said: Mapping[str, Any], query: Mapping[str, Any], place: str = "") -> str:
    login = quote(str(said["USER"] or ""), safe="")
    if said["PASSWORD"]:
        login += ":" + quote(str(said["PASSWORD"]), safe="")
    name = quote(str(said["NAME"] or ""), safe="")
    return f"{scheme}://{login}{'@' if login else ''}{place}/{name}{'?' if query else ''}{urlencode(query)}"


def _sqlite(alias: str, name: str) -> str:
    """The file, or what Django's test runner keeps in memory, which only this process sees."""
    if name.startswith("file:memorydb_"):
        return f"sqlite:///{name}&uri=true"
    if name in ("", ":memory:") or name.startswith("file:"):
        raise ConfigError(
            f"outbox = {alias!r}: NAME of this database is {name!r}, and a worker is another process: it needs a file"
        )
    return f"sqlite:///{Path(name).absolute()}"
