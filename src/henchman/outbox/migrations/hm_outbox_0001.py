"""The first tables, as ``versions/hm_outbox_0001.py`` makes them: the workers take either for the other.

They stand here as they were made then: a script never changes.
"""

from __future__ import annotations

import os
from typing import Any

from django.db import migrations

from henchman.errors import OutboxError

_REVISION = "hm_outbox_0001"
_KINDS = {
    "postgresql": {
        "id": "BIGSERIAL PRIMARY KEY",
        "plain": ' COLLATE "C"',
        "text": "TEXT",
        "double": "DOUBLE PRECISION",
        "options": "",
    },
    "mysql": {
        "id": "BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY",
        "plain": "",
        "text": "LONGTEXT",
        "double": "DOUBLE",
        "options": " ENGINE=InnoDB CHARSET=utf8mb4 COLLATE utf8mb4_bin",
    },
    "sqlite": {
        "id": "INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT",
        "plain": "",
        "text": "TEXT",
        "double": "DOUBLE",
        "options": "",
    },
}
_TABLES = (
    "CREATE TABLE henchman_outbox (id {id}, jid VARCHAR(100){plain} NOT NULL, queue VARCHAR(255) NOT NULL, "
    "payload {text} NOT NULL, due {double}, meta {text}, line VARCHAR(64){plain}, created {double} NOT NULL, "
    "problem VARCHAR(500), UNIQUE (jid)){options}",
    "CREATE INDEX henchman_outbox_by_line ON henchman_outbox (line, id)",
    "CREATE TABLE henchman_outbox_line (line VARCHAR(64){plain} NOT NULL, turn BIGINT NOT NULL, "
    "PRIMARY KEY (line)){options}",
    "CREATE TABLE henchman_outbox_marker (id INTEGER NOT NULL, name VARCHAR(32) NOT NULL, namespace VARCHAR(255), "
    "PRIMARY KEY (id)){options}",
)
_VERSION = (
    "CREATE TABLE henchman_outbox_version (version_num VARCHAR(32) NOT NULL, "
    "CONSTRAINT henchman_outbox_version_pkc PRIMARY KEY (version_num))"
)
# Every row is deleted soon: the default waits for a fifth of them.
_VACUUM = "ALTER TABLE henchman_outbox SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000)"


def make(apps: Any, editor: Any) -> None:
    """Make the tables, and draw the name of this outbox; nothing where ``henchman db upgrade --outbox`` has been."""
    vendor = editor.connection.vendor
    if vendor not in _KINDS:
        raise OutboxError(f"an outbox lives in PostgreSQL, MySQL, MariaDB or SQLite, not in {vendor}")
    if "henchman_outbox_version" in editor.connection.introspection.table_names():
        return
    for statement in _TABLES:
        editor.execute(statement.format(**_KINDS[vendor]))
    if vendor == "postgresql":
        editor.execute(_VACUUM)
    editor.execute("INSERT INTO henchman_outbox_marker (id, name) VALUES (1, %s)", [os.urandom(16).hex()])
    editor.execute(_VERSION)  # at the end: MySQL has no transaction around it
    editor.execute("INSERT INTO henchman_outbox_version (version_num) VALUES (%s)", [_REVISION])


def remove(apps: Any, editor: Any) -> None:
    """Remove them, with all that waits there."""
    for name in ("version", "marker", "line"):
        editor.execute(f"DROP TABLE henchman_outbox_{name}")
    editor.execute("DROP TABLE henchman_outbox")


class Migration(migrations.Migration):  # type: ignore[misc]
    """No models stand behind it, so ``makemigrations`` has nothing to say of it."""

    initial = True
    operations = (migrations.RunPython(make, remove, atomic=False),)
