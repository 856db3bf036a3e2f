"""Where settings come from, and how a value of each kind is read.

Three sources, weakest first: a file (``henchman.toml``, or ``[tool.henchman]`` in ``pyproject.toml``), the
environment, arguments. Each becomes a ``Layer``: raw values and where each was found. What a value may be is said by a
``Kind``. Text from the environment is parsed; a file and an argument must bring the right type.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from henchman.errors import ConfigError
from henchman.kernel.text import as_shown, bytes_text, did_you_mean, mask_url, seconds_text, shorten, visible

__all__ = ["Kind", "Layer", "environment_layer", "file_layer", "key", "project_folder"]

FILE = "henchman.toml"
PREFIX = "HENCHMAN_"
#: (beginnings of) the command line's and the workshop's own
NOT_SETTINGS = ("HENCHMAN_DEBUG", "HENCHMAN_REQUIRE_ALL", "HENCHMAN_TEST_", "HENCHMAN_BENCH_")
# Kubernetes puts these into every pod beside a service whose name begins with "henchman".
OF_KUBERNETES = re.compile(r"HENCHMAN_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_(TCP|UDP)(_\w+)?)?)")
SCHEMES = ("redis", "rediss", "unix", "sentinel")
SERVERS = f"an address such as redis://localhost:6379/0 (or {', '.join(f'{one}://' for one in SCHEMES[1:])})"
#: a queue to serve, with its weight
QUEUE = r"(?!.*:(?!([1-9][0-9]{0,2}|1000)$)[0-9]*$)(?!:[0-9]+$)[A-Za-z0-9_:.-]+"
QUEUE_DUE = "NAME or NAME:WEIGHT, the name of letters, digits and _ : . -, the weight 1 to 1000"
PROJECT_MARKS = (FILE, "pyproject.toml", "setup.py", "setup.cfg", ".git")


class Layer(NamedTuple):
    """The raw values of one source. ``folder``: what a relative path is relative to. ``text``: values need parsing."""

    values: Mapping[str, object]
    origins: Mapping[str, str]
    folder: Path
    text: bool = False


class Kind(NamedTuple):
    """What a setting may hold. ``read(value, layer)`` gives the value to keep; its ValueError says what is due."""

    read: Callable[[Any, Layer], object]
    show: Callable[[Any], str] | None = None  # of a number
    hide: Callable[[str], str] = visible


# --- the kinds ------------------------------------------------------------------------------------------------------


def text(pattern: str = "", due: str = "text") -> Kind:
    """Text; all of it must match ``pattern`` where one is given, and ``due`` says so in words."""

    def read(value: Any, layer: Layer) -> str:
        if not isinstance(value, str) or (pattern and not re.fullmatch(pattern, value)):
            raise ValueError(due)
        return value

    return Kind(read)


def words(pattern: str = "", due: str = "text") -> Kind:
    """A list of texts, each as ``text``; separated by commas in the environment."""
    one = text(pattern or r"[^\x00-\x1f,]+", due)

    def read(value: Any, layer: Layer) -> tuple[str, ...]:
        if layer.text:
            value = [part.strip() for part in value.split(",") if part.strip()]
        if not isinstance(value, list | tuple):
            raise ValueError(f"a list, each {due}")
        return tuple(str(one.read(part, layer)) for part in value)

    return Kind(read)


def choice(*allowed: str) -> Kind:
    """One of a few words, in any case; 8 is read as "8"."""

    def read(value: Any, layer: Layer) -> str:
        word = str(value).lower() if isinstance(value, str | int) else ""
        if word not in allowed:
            raise ValueError(f"one of {', '.join(allowed)}{did_you_mean(word, allowed)}")
        return word

    return Kind(read)


def boolean() -> Kind:
    """True or false; in the environment also yes, no, on, off, 1, 0."""

    def read(value: Any, layer: Layer) -> bool:
        if layer.text:
            value = {"yes": 1, "true": 1, "on": 1, "1": 1, "no": 0, "false": 0, "off": 0, "0": 0}.get(
                value.lower(), value
            )
            value = bool(value) if isinstance(value, int) else value
        if not isinstance(value, bool):
            raise ValueError("one of yes, no, true, false, 1, 0" if layer.text else "true or false")
        return value

    return Kind(read)


def whole(low: int, high: int) -> Kind:
    """A whole number from ``low`` to ``high``."""

    def read(value: Any, layer: Layer) -> int:
        due = f"a whole number from {low:,} to {high:,}"
        if layer.text and re.fullmatch(r"[+-]?[0-9_]{1,20}", value):
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(due)
        return value

    return Kind(read)


def seconds(low: float, high: float) -> Kind:
    """A duration in seconds from ``low`` to ``high``; an argument may be a timedelta."""

    def read(value: Any, layer: Layer) -> float:
        due = f"seconds, a number from {low:,} to {high:,}"
        if layer.text and re.fullmatch(r"[+-]?[0-9]+(\.[0-9]*)?|\.[0-9]+", value):
            value = float(value)
        if isinstance(value, timedelta):
            value = value.total_seconds()
        if not isinstance(value, int | float) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(due)
        return float(value)

    return Kind(read, show=seconds_text)


def amount(low: int, high: int, *, megabytes: bool = False) -> Kind:
    """An amount of memory, kept in bytes or in MB: a whole number, or text such as "500MB" or "1.5GB"."""
    units = "MB|GB|M|G" if megabytes else "MB|GB|M|G|B"
    factors = {"m": 1, "g": 1024} if megabytes else {"b": 1, "m": 1024**2, "g": 1024**3}
    due = (
        f'memory from {low:,} to {high:,} MB, such as 500, "500MB"'
        if megabytes
        else (f'bytes from {low:,} to {high:,}, or text such as "256MB"')
    )

    def read(value: Any, layer: Layer) -> int:
        if isinstance(value, str) and (match := re.fullmatch(rf"(?i)([0-9]+(?:\.[0-9]+)?) ?({units})?", value)):
            value = int(float(match[1]) * factors[(match[2] or next(iter(factors)))[0].lower()])
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise ValueError(f'{due} or "1.5GB"')
        return value

    return Kind(read, show=lambda value: bytes_text(value * 1024**2) if megabytes else bytes_text(value))


def path() -> Kind:
    """A path, kept absolute: in a file it is relative to that file's folder, elsewhere to the working folder."""

    def read(value: Any, layer: Layer) -> Path:
        if not isinstance(value, str | Path) or not str(value).strip() or "\0" in str(value):
            raise ValueError("a path")
        return Path(os.path.abspath(layer.folder / Path(value).expanduser()))

    return Kind(read)


def capsules() -> Kind:
    """Tables by name: ``{"single": {"queues": ["single"], "concurrency": 1}}``; not from the environment."""

    def read(value: Any, layer: Layer) -> dict[str, dict[str, object]]:
        due = 'tables such as [capsules.single] with queues = ["single"] and concurrency = 1'
        if not isinstance(value, Mapping):
            raise ValueError(due)
        return {str(name): _capsule(str(name), table, due) for name, table in value.items()}

    return Kind(read)


def _capsule(name: str, table: object, due: str) -> dict[str, object]:
    if not isinstance(table, Mapping) or not re.fullmatch(r"[\w.-]{1,60}", name) or name == "default":
        raise ValueError(f'{due}; the name "default" is taken')
    for key in table:
        if key not in ("queues", "concurrency"):
            raise ValueError(f"{due}; there is no {key!r}{did_you_mean(str(key), ('queues', 'concurrency'))}")
    queues, slots = table.get("queues"), table.get("concurrency", 1)
    if not isinstance(queues, list | tuple) or not queues or not all(isinstance(one, str) and one for one in queues):
        raise ValueError(f"{due}; {name} needs a list of queues")
    if wrong := [one for one in queues if not re.fullmatch(QUEUE, one)]:
        raise ValueError(f"{due}; {name}: {wrong[0]!r} must be {QUEUE_DUE}")
    if not isinstance(slots, int) or isinstance(slots, bool) or not 1 <= slots <= 1000:
        raise ValueError(f"{due}; the concurrency of {name} is a whole number from 1 to 1,000")
    return {"queues": list(queues), "concurrency": slots}


#: what a queue may say
OF_QUEUES = ("timeout", "deadline", "objective")
_QUEUE_TABLES_DUE = (
    "tables such as [queues.mail] with timeout = 30, deadline = 3600 and objective = 60, in seconds; 0: none"
)


def queue_tables() -> Kind:
    """Tables by the name of a queue: ``{"mail": {"timeout": 30}}``; not from the environment."""

    def read(value: Any, layer: Layer) -> dict[str, dict[str, float]]:
        if not isinstance(value, Mapping):
            raise ValueError(_QUEUE_TABLES_DUE)
        return {str(name): _queue_table(str(name), table, layer) for name, table in value.items()}

    return Kind(read)


def _queue_table(name: str, table: Any, layer: Layer) -> dict[str, float]:
    if not isinstance(table, Mapping):
        raise ValueError(f"{_QUEUE_TABLES_DUE}; {name} is {as_shown(table, 80)}")
    for option in table:
        if option not in OF_QUEUES:
            raise ValueError(
                f"{_QUEUE_TABLES_DUE}; {name}: there is no {option!r}{did_you_mean(str(option), OF_QUEUES)}"
            )
    one = seconds(0, 1e9)
    return {option: float(one.read(given, layer)) for option, given in table.items()}  # type: ignore[arg-type]


#: what an address of another site may take up
OF_LINKS = ("jid", "class", "queue", "batch", "host", "process", "error", "fingerprint")
_LINKS_DUE = (
    'addresses by name, such as {logs = "https://logs.example/?q={jid}"}, with any of '
    f"{', '.join(OF_LINKS)} in braces"
)


def links() -> Kind:
    """Addresses of other sites by name, ``{"logs": "https://…?q={jid}"}``; as text ``logs=https://…,traces=https://…``."""

    def read(value: Any, layer: Layer) -> dict[str, str]:
        if layer.text:
            pairs = (part.partition("=") for part in re.split(r",(?=[^,=]+=(?:https?://|/))", value) if part.strip())
            value = {name.strip(): address.strip() for name, _, address in pairs}
        if not isinstance(value, Mapping) or len(value) > 20:
            raise ValueError(f"at most 20 {_LINKS_DUE}")
        return {str(name): _link(str(name), address) for name, address in value.items()}

    return Kind(read)


def _link(name: str, address: object) -> str:
    if not re.fullmatch(r"[^\x00-\x1f,=]{1,40}", name) or not isinstance(address, str):
        raise ValueError(f"{_LINKS_DUE}; {as_shown(name, 60)} is {as_shown(address, 60)}")
    if not re.fullmatch(r"(https?://[^\s/{}]+|/)([^\s]*)", address) or len(address) > 1000:
        raise ValueError(f"{_LINKS_DUE}; {name}: give an address that begins with https://, http:// or /")
    rest = re.sub("|".join(f"{{{one}}}" for one in OF_LINKS), "", address)
    if unknown_field := re.search(r"[{}][^{}]*}?", rest):
        near = did_you_mean(unknown_field[0].strip("{}"), OF_LINKS)
        raise ValueError(f"{_LINKS_DUE}; {name}: there is no {unknown_field[0]}{near}")
    return address


def url(due: str, schemes: tuple[str, ...], *, drivers: bool = False) -> Kind:
    """The address of a server, with ``drivers`` also as ``postgresql+psycopg``; its password is never shown."""

    def read(value: Any, layer: Layer) -> str:
        if not isinstance(value, str):
            raise ValueError(due)
        scheme, found, rest = value.strip().partition("://")
        product = scheme.lower().partition("+" if drivers else ":")[0]
        if not found or not rest or product not in schemes:
            raise ValueError(due + (did_you_mean(product, schemes) if found else ""))
        return value.strip()

    return Kind(read, hide=_masked)


def url_or_name(due: str, schemes: tuple[str, ...]) -> Kind:
    """The address of a database as ``url`` takes it, or a name that stands for one."""
    address = url(due, schemes, drivers=True)

    def read(value: Any, layer: Layer) -> Any:
        if isinstance(value, str) and re.fullmatch(r"[\w.-]+", value.strip()):
            return value.strip()
        return address.read(value, layer)

    return Kind(read, hide=_masked)


def _masked(value: str) -> str:
    shown = mask_url(value) if "://" in value else mask_url(f"redis://{value}").removeprefix("redis://")
    return visible(shown)


def read_value(name: str, kind: Kind, layer: Layer) -> object:
    """The value of ``name`` in ``layer``, checked; ConfigError names value, place and what is due."""
    raw = layer.values[name]
    try:
        return kind.read(raw.strip() if layer.text and isinstance(raw, str) else raw, layer)
    except ValueError as due:
        shown = kind.hide(raw if isinstance(raw, str) else as_shown(raw, 1000))
        raise ConfigError(f"{name} = {shorten(shown, 100)!s} ({layer.origins[name]}): it must be {due}") from None


# --- the sources ----------------------------------------------------------------------------------------------------


def file_layer(start: Path, known: tuple[str, ...]) -> Layer:
    """The nearest file with settings, from ``start`` upwards; an empty layer when there is none."""
    for folder in _upwards(start):
        found = [
            (file, table) for file in (folder / FILE, folder / "pyproject.toml") if (table := _table(file)) is not None
        ]
        if len(found) > 1:
            raise ConfigError(
                f"settings stand in {found[0][0]} and in [tool.henchman] of {found[1][0]}: keep one of them"
            )
        for file, table in found:
            if folder != Path(os.path.abspath(start)):
                _must_be_trusted(file)
            table = _with_queue_tables(table, file)  # noqa: PLW2901
            for name in table:
                if name not in known:
                    hint = "; its settings stand at the top, without [tool.henchman]" if name == "tool" else ""
                    raise unknown(name, f"{file.name} ({file})", known, hint)
            return Layer(table, dict.fromkeys(table, f"{file.name} ({file})"), folder)
    return Layer({}, {}, start)


def _with_queue_tables(table: dict[str, object], file: Path) -> dict[str, object]:
    """``[queues.NAME]`` says what holds for the jobs of a queue, ``queues = […]`` which are served: two settings."""
    if not isinstance(table.get("queues"), Mapping):
        return table
    if "queue_defaults" in table:
        raise ConfigError(f"{file.name} ({file}) has [queues.…] and [queue_defaults.…], which mean the same: keep one")
    return {"queue_defaults" if name == "queues" else name: value for name, value in table.items()}


def _must_be_trusted(file: Path) -> None:
    """A file above the working folder may have been put there by somebody else, to lead jobs to a server of theirs."""
    facts, above = file.stat(), file.parent.stat()
    if facts.st_uid not in (os.geteuid(), 0):
        why = f"it belongs to user number {facts.st_uid}, and this process runs as number {os.geteuid()}"
    elif facts.st_mode & 0o002:
        why = "everybody on this machine may write it (chmod o-w)"
    elif above.st_mode & 0o002 and not above.st_mode & stat.S_ISVTX:
        why = f"everybody on this machine may exchange it (chmod o-w {file.parent})"
    else:
        return
    raise ConfigError(
        f"{file} is not trusted: it stands above the working folder, and {why}; if its settings are yours, make it "
        f"yours alone, or work in {file.parent}; else put a {FILE} (it may be empty) into the working folder"
    )


def environment_layer(env: Mapping[str, str], folder: Path, known: tuple[str, ...]) -> Layer:
    """The ``HENCHMAN_*`` variables, and ``REDIS_URL``; an empty one counts as not set."""
    values: dict[str, object] = {}
    origins: dict[str, str] = {}
    if env.get("REDIS_URL", "").strip():
        values["redis_url"], origins["redis_url"] = env["REDIS_URL"], "environment REDIS_URL"
    for variable in sorted(env):
        if not variable.startswith(PREFIX) or variable.startswith(NOT_SETTINGS) or OF_KUBERNETES.fullmatch(variable):
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name not in known or variable != variable.upper():
            near = did_you_mean(variable.upper(), [PREFIX + one.upper() for one in known])
            raise ConfigError(f"the environment variable {visible(variable)} is no setting of Henchman{near}")
        if env[variable].strip():
            values[name], origins[name] = env[variable], f"environment {variable}"
    return Layer(values, origins, folder, text=True)


def unknown(name: str, place: str, known: tuple[str, ...], hint: str = "") -> ConfigError:
    """The error for a setting that does not exist."""
    hint = hint or did_you_mean(name.lower().replace("-", "_"), known)
    return ConfigError(f"unknown setting {visible(name)!r} in {place}{hint}")


def project_folder(start: Path) -> Path:
    """The nearest folder from ``start`` upwards that looks like a project's; ``start`` itself when none does."""
    for folder in _upwards(start):
        if any((os.path.exists(folder / mark)) for mark in PROJECT_MARKS):
            return folder
    return start


def _upwards(start: Path) -> Iterator[Path]:
    start = Path(os.path.abspath(start))
    yield start
    yield from start.parents


def load(text: str) -> dict[str, Any]:
    """The table that TOML ``text`` is; ValueError if it is none. The reader is slow to import, and most programs of a
    deployment are set up by their environment alone."""
    import tomllib

    return tomllib.loads(text)


def _table(file: Path) -> dict[str, object] | None:
    """The settings in ``file``; None when it is not there, or is a pyproject.toml that does not speak of Henchman."""
    if not os.path.isfile(file):  # unlike Path.is_file, no error in a folder that we may not read
        return None
    try:
        data = file.read_bytes()
        if file.name != FILE and b"henchman" not in data:
            return None  # another tool's file: not ours to parse, nor to complain of
        table = load(data.decode())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from None
    if file.name == FILE:
        return table
    tool = table.get("tool", {})
    own = tool.get("henchman") if isinstance(tool, dict) else None
    if own is not None and not isinstance(own, dict):
        raise ConfigError(f"{file}: tool.henchman must be a table, [tool.henchman]")
    return own


def key(default: Any, kind: Kind, help: str) -> Any:
    """The declaration of one setting on one line of the class that holds it, a dataclass field.

    A default that is a dict is made anew for each, and left out of the hash.
    """
    if isinstance(default, dict):
        return field(default_factory=dict, hash=False, metadata={"kind": kind, "help": help})
    return field(default=default, metadata={"kind": kind, "help": help})
