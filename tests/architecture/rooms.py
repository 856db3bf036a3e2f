"""The law of imports: each room, its level, and what it may import.

A room may import the rooms named, what those may import, and ``errors``; never a room of its own level or above. A name
with a dot is that of a room within a room, or opens one module of a room and nothing else of it.
"""

from __future__ import annotations

from typing import NamedTuple


class Room(NamedTuple):
    level: int
    may: tuple[str, ...] = ()


FEATURES = ("batch", "cron", "iterable", "ordered")
BELOW_APP = (
    "client",
    "worker",
    "inspector",
    "deploy",
    "oncall",
    "console",
    "console.api",
    "history",
    "outbox",
    "embedded",
    *FEATURES,
    "contrib",
    "log",
    "work",
    "isolation",
    "limits",
)
EVERYTHING = ("app", "henchman", *BELOW_APP)

ROOMS = {
    "errors": Room(0),
    "iterators": Room(1),
    "kernel": Room(1),
    "config": Room(2, ("kernel",)),
    "wire": Room(2, ("kernel",)),
    "embedded": Room(2, ("kernel",)),
    "store": Room(3, ("kernel",)),
    "sql": Room(3, ("kernel",)),
    "work": Room(4, ("wire", "store")),
    "isolation": Room(4, ("config", "wire", "store")),  # what a definition says, and the worker's side of the processes
    "limits": Room(2, ("kernel",)),
    "client": Room(5, ("isolation", "limits", "work", "config", "wire", "store")),
    "worker": Room(
        6,
        (
            "client.registry",
            "client.options",
            "client.runtime",
            "isolation",
            "work",
            "config",
            "wire",
            "store",
        ),
    ),
    "batch": Room(6, ("client", "work")),
    "cron": Room(6, ("client", "work")),
    "iterable": Room(6, ("client", "work")),
    "ordered": Room(6, ("client", "work")),
    "contrib": Room(6, ("client",)),
    "history": Room(6, ("client.runtime", "client.registry", "work", "config", "wire", "store", "sql")),
    "outbox": Room(6, ("client", "sql")),
    "log": Room(6, ("client.runtime", "client.registry", "work", "config", "wire", "store")),
    "inspector": Room(6, ("client.runtime", "client.registry", "limits", "work", "config", "wire", "store")),
    "deploy": Room(
        7, ("client.runtime", "client.registry", "cron", "inspector", "wire", "work", "worker")
    ),  # new code, old jobs
    "oncall": Room(7, ("client.runtime", "batch", "cron", "history.records", "history.search", "inspector")),
    "console.api": Room(
        8, ("client.runtime", "batch", "cron", "history.records", "history.search", "inspector", "oncall")
    ),
    "console": Room(
        9, ("client.runtime", "batch", "cron", "history.records", "history.search", "history.as_csv", "console.api")
    ),
    "app": Room(10, BELOW_APP),
    "henchman": Room(11, ("app", *BELOW_APP)),  # the front door, henchman/__init__.py
    "supervisor": Room(12, EVERYTHING),
    "demo": Room(13, (*EVERYTHING, "supervisor")),
    "web": Room(12, ("inspector", "history", "app", "henchman")),
    "top": Room(12, ("client.runtime", "oncall", "inspector")),
    "cli": Room(14, (*EVERYTHING, "supervisor", "demo", "top")),
    "bench": Room(15, (*EVERYTHING, "cli")),
    "__main__": Room(15, ("cli",)),
    "contrib.fastapi": Room(15, ("app", "web", "config")),
    "contrib.flask": Room(15, (*EVERYTHING, "supervisor", "cli")),
    "contrib.django": Room(15, (*EVERYTHING, "supervisor", "cli")),
    "testing": Room(15, (*EVERYTHING, "supervisor", "cli", "web")),
}
NOBODY_IMPORTS = ("testing", "__main__")

# Folders of scripts that a library loads, deeper than a room: nobody imports them.
SCRIPTS = {
    "history.versions": "Alembic's, one a change of the schema",
    "outbox.versions": "Alembic's, one a change of the schema",
    "contrib.django.management": "Django's: what manage.py finds",
    "contrib.django.management.commands": "Django's: the commands of manage.py",
    "outbox.migrations": "Django's, one for each of Alembic's",
}

# The only files that may import inside functions, beside one ``load`` function a room whose part is heavy or optional.
IMPORT_ANYWHERE = {"app.py", "__init__.py", "cli/main.py"}

# The only files that import by name at run time, and what.
IMPORTS_BY_NAME = {
    "client/registry.py": "the modules that define a user's jobs",
    "supervisor/load.py": "the user's app",
    "cli/main.py": "the commands",
}


def room_of(module: str) -> str:
    """The room of a module: its first part, unless a room within that one is its."""
    nested = next((one for one in ROOMS if "." in one and f"{module}.".startswith(f"{one}.")), None)
    return nested or module.partition(".")[0] or "henchman"


def allowed(room: str) -> tuple[set[str], set[str]]:
    """What a room may import: whole rooms, and single modules."""
    rooms, single = {"errors"}, set()
    ahead = list(ROOMS[room].may)
    while ahead:
        name = ahead.pop()
        if "." in name and name not in ROOMS:
            single.add(name)
        elif name not in rooms:
            rooms.add(name)
            ahead.extend(ROOMS[name].may)
    return rooms, single
