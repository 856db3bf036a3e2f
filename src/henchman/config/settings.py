"""Every setting: one frozen ``Config``, made once at start and passed down.

A setting comes from a file, the environment or an argument, the later one wins; ``origins`` remembers which. Nothing
is read at import. A value that was not set is not the same as one that was set to its default: an argument that is
``None`` or ``UNSET`` leaves what the layers below say.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, Self

from henchman.config import sources
from henchman.config.sources import QUEUE, QUEUE_DUE, Kind, Layer
from henchman.config.sources import key as _key
from henchman.errors import ConfigError
from henchman.kernel.text import as_shown, did_you_mean, mask_url, seconds_text

__all__ = ["ENDED", "UNSET", "Config", "Setting", "Unset"]

#: the statuses in which a job ends; only these are forgotten by age
ENDED: Final = ("finished", "failed", "error", "cancelled", "expired")
FILE = "history.sqlite"
_SCHEMES = ("sqlite", "postgresql", "postgres", "mysql", "mariadb")
_DUE = "an address such as postgresql://user@host/name (or mysql://, mariadb://, sqlite:///path/to/file)"


def _durations(names: tuple[str, ...], high: float) -> Kind:
    """Seconds by name: ``{"finished": 604800}``; in the environment ``finished=604800,error=2592000``."""
    one = sources.seconds(0, high)

    def read(value: Any, layer: Layer) -> dict[str, float]:
        if layer.text:
            pairs = (part.partition("=") for part in value.split(",") if part.strip())
            value = {name.strip(): seconds.strip() for name, _, seconds in pairs}
        if not isinstance(value, Mapping):
            raise ValueError(f"seconds by status, such as {{finished = 604800}}; statuses are {', '.join(names)}")
        for name in value:
            if name not in names:
                raise ValueError(f"by status, of {', '.join(names)}{did_you_mean(str(name), names)}")
        return {str(name): float(one.read(given, layer)) for name, given in value.items()}  # type: ignore[arg-type]

    return Kind(read, show=seconds_text)


_TOKEN = re.compile(r"[A-Za-z0-9._~+/=-]{16,200}")  # what RFC 6750 lets stand behind "Bearer"
DUE: Final = "16 to 200 letters, digits and . _ ~ + / = -"


def is_token(text: object) -> bool:
    """Whether ``text`` can be a token: long enough not to be guessed, and sendable in a header."""
    return isinstance(text, str) and _TOKEN.fullmatch(text) is not None


def _tokens() -> Kind:
    """One token or several, separated by commas where they come as text; never shown."""

    def read(value: Any, layer: Layer) -> tuple[str, ...]:
        if isinstance(value, str):
            value = [part.strip() for part in value.split(",") if part.strip()]
        if not isinstance(value, list | tuple) or not all(is_token(one) for one in value):
            raise ValueError(f"a token or a list of tokens, each {DUE}")
        return tuple(value)

    return Kind(read, hide=lambda value: "***")


def _password() -> Kind:
    """A text that is never shown."""

    def read(value: Any, layer: Layer) -> str:
        if not isinstance(value, str) or not 8 <= len(value) <= 500:
            raise ValueError("a text of 8 to 500 characters")
        return value

    return Kind(read, hide=lambda value: "***")


def _encryption_keys() -> Kind:
    """Keys by id, the first for what is new; as text ``2026-11=…,2026-05=…``. Never shown."""

    def read(value: Any, layer: Layer) -> dict[str, str]:
        if isinstance(value, str):
            pairs = (part.strip().partition("=") for part in value.split(",") if part.strip())
            value = {id: key for id, _, key in pairs}
        if not isinstance(value, Mapping):
            raise ValueError('keys by id, as in {"2026-11" = "…"}')
        for id, key in value.items():
            if not isinstance(id, str) or not re.fullmatch(r"[A-Za-z0-9_.-]{1,40}", id):
                raise ValueError(f"keys by id; {as_shown(id, 60)} is no id: up to 40 letters, digits and _ . -")
            if not isinstance(key, str) or not re.fullmatch(r"[A-Za-z0-9_-]{43}=", key):
                raise ValueError(f"keys of 32 bytes as URL-safe base64 (44 characters), which that of {id!r} is not")
        return dict(value)

    return Kind(
        read, hide=lambda value: ", ".join(f"{id} = ***" for id in value) if isinstance(value, Mapping) else "***"
    )


class Unset(Enum):
    """The type of ``UNSET``, for annotations: ``value: int | Unset = UNSET``."""

    UNSET = "unset"

    def __bool__(self) -> bool:
        return False


UNSET: Final = Unset.UNSET
ARGUMENT_ALIASES = {"timeout": "shutdown_timeout"}  # -t of the command line
DEFAULT = "default"
YEAR = 365 * 86400.0


class Setting(NamedTuple):
    """One setting as people see it: passwords masked, units named."""

    name: str
    value_text: str
    origin: str
    help: str


@dataclass(frozen=True, repr=False)
class Config:
    """The settings of one app. Durations are seconds. Made by ``load``; tests may call it with keywords."""

    app: str | None = _key(
        None, sources.text(".+", 'text such as "pkg.mod:app"'), "The app that commands work on: pkg.mod:app."
    )
    imports: tuple[str, ...] = _key(
        (),
        sources.words(r"[\w.*]+", 'the name of a module, "*" allowed'),
        'Modules that define jobs, loaded when a worker starts: "pkg.jobs", "pkg.*.jobs".',
    )
    redis_url: str | None = _key(
        None,
        sources.url(sources.SERVERS, sources.SCHEMES),
        "The server: redis://, rediss://, unix:// or sentinel://. Not set: the embedded server.",
    )
    namespace: str = _key(
        "",
        sources.text(
            r"([A-Za-z0-9_.:{}-]*[A-Za-z0-9_.{}-])?", "letters, digits and _ . - : { }, not ending in a colon"
        ),
        "A prefix before every key, so that several apps share one server.",
    )
    embedded: bool = _key(True, sources.boolean(), "Whether the embedded server may be used when redis_url is not set.")
    folder: Path | None = _key(
        None, sources.path(), "The embedded server's folder. Not set: .henchman in the project's folder."
    )
    sidekiq: Literal["mixed", "8", "7", "6"] = _key(
        "mixed",
        sources.choice("mixed", "8", "7", "6"),
        "Which Sidekiq shares the server: mixed writes what every version from 6 on can read.",
    )
    timestamps: Literal["seconds", "ms"] | None = _key(
        None,
        sources.choice("seconds", "ms"),
        'How times stand in payloads. Not set: float seconds. "ms" (whole milliseconds) needs sidekiq = "8".',
    )
    queues: tuple[str, ...] = _key(
        (),
        sources.words(QUEUE, QUEUE_DUE),
        'Queues to serve: "critical:3" has weight 3. Not set: every queue that the jobs name, and default.',
    )
    concurrency: int = _key(10, sources.whole(1, 1000), "Slots of a worker process: jobs that it runs at once.")
    capsules: Mapping[str, Mapping[str, Any]] = _key(
        {},
        sources.capsules(),
        "Groups of queues with slots of their own beside the default ones: [capsules.NAME] queues, concurrency.",
    )
    ordered_scheduler: Literal["lag", "seq", "weighted"] = _key(
        "lag",
        sources.choice("lag", "seq", "weighted"),
        "Which ordered queue goes first where order is not strict: the one that waits longest, in turn, or as drawn.",
    )
    ordered_nodes: int = _key(
        1, sources.whole(1, 10_000), "Over how many nodes ordered queues are dealt; 1: every process serves all."
    )
    ordered_node: int = _key(0, sources.whole(0, 9_999), "The number of this node, from 0, with ordered_nodes.")
    processes: int = _key(1, sources.whole(1, 256), "Worker processes under one supervisor.")
    shutdown_timeout: float = _key(
        25.0, sources.seconds(0, 86400), "How long running jobs may go on after a stop; then they are given back."
    )
    lease: float = _key(
        15.0, sources.seconds(5, 3600), "How long a silent process keeps its jobs before others may rescue them."
    )
    hang_after: float = _key(
        180.0, sources.seconds(1, 86400), "A process that shows no sign of life for so long is killed and replaced."
    )
    heartbeat: float = _key(
        5.0, sources.seconds(0.1, 600), "Time between two heartbeats. Not set: 5, at most a third of the lease."
    )
    connect_timeout: float = _key(3.0, sources.seconds(0.01, 600), "Limit for connecting to the server.")
    io_timeout: float = _key(5.0, sources.seconds(0.01, 600), "Limit for one answer of the server.")
    wait_replicas: int = _key(
        0,
        sources.whole(0, 100),
        "Replicas that must have a push before enqueue returns (WAIT); with fewer it raises Unconfirmed. 0: not asked.",
    )
    wait_timeout: float = _key(
        1.0,
        sources.seconds(0.001, 600),
        "How long enqueue waits for wait_replicas. Not set: 1, at most half of io_timeout.",
    )
    buffer: int = _key(
        0,
        sources.whole(0, 1_000_000),
        "Most jobs that a client keeps in memory while the server is away; they are not accepted. 0: enqueue raises.",
    )
    transactional: bool = _key(
        False,
        sources.boolean(),
        "Whether a push inside a database transaction (Django's atomic, a bound session of SQLAlchemy) waits for the "
        "commit, and vanishes with a rollback.",
    )
    max_retries: int = _key(25, sources.whole(0, 10_000), "Retries of a job with retry = true.")
    job_timeout: float = _key(
        0.0,
        sources.seconds(0, 1e9),
        "How long one run may take, where neither its job nor its queue says. 0: no limit.",
    )
    job_deadline: float = _key(
        0.0,
        sources.seconds(0, 1e9),
        "After how long a job is over, with all its attempts, where neither it nor its queue says. 0: never.",
    )
    queue_defaults: Mapping[str, Mapping[str, float]] = _key(
        {},
        sources.queue_tables(),
        "The same for the jobs of a queue: [queues.NAME] timeout, deadline; objective: how long they may wait in it.",
    )
    dead_max: int = _key(10_000, sources.whole(0, 10_000_000), "Most jobs that the dead set keeps.")
    dead_timeout: float = _key(180 * 86400.0, sources.seconds(0, 100 * YEAR), "How long the dead set keeps a job.")
    max_memory: int | None = _key(
        None,
        sources.amount(16, 16 * 1024**2, megabytes=True),
        'Memory above which a worker process is replaced, such as "500MB". Not set: no limit.',
    )
    max_jobs: int | None = _key(
        None, sources.whole(1, 10**12), "Jobs after which a worker process is replaced. Not set: no limit."
    )
    isolated_memory: int | None = _key(
        None,
        sources.amount(64, 16 * 1024**2, megabytes=True),
        'Memory that the process of an isolated run may allocate, such as "512MB". Not set: no limit.',
    )
    isolated_ready: int = _key(
        1, sources.whole(0, 1000), "Processes for isolated runs that a worker keeps ready, where a job has isolate."
    )
    log_format: Literal["auto", "pretty", "json", "logfmt"] = _key(
        "auto",
        sources.choice("auto", "pretty", "json", "logfmt"),
        "How log lines look; auto is pretty on a terminal and logfmt elsewhere.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = _key(
        "info", sources.choice("debug", "info", "warning", "error"), "The least important log line that is written."
    )
    configure_logging: bool = _key(
        True,
        sources.boolean(),
        "Whether worker processes set up the log. false: what your own code configures when it is imported stays as it "
        "is, and log_format does not count.",
    )
    health: str | None = _key(
        None,
        sources.text(r"(.+:)?[0-9]{1,5}", "a port, or host:port"),
        "Where a supervisor answers GET /live and /ready: 8001 or 0.0.0.0:8001. Not set: nowhere.",
    )
    dump_folder: Path | None = _key(
        None,
        sources.path(),
        "Where TTIN writes henchman-<pid>-stacks.txt. Not set: the system's folder for such files.",
    )
    journal: Path | None = _key(
        None,
        sources.path(),
        "Folder in which a worker keeps how jobs ended that it could not tell: the next one that starts there does. "
        "Not set: they run again.",
    )
    tag: str = _key("", sources.text(), "A word that names this deployment in process lists.")
    labels: tuple[str, ...] = _key((), sources.words(), "Labels of a worker process, shown in process lists.")
    database_url: str | None = _key(
        None,
        sources.url(_DUE, _SCHEMES, drivers=True),
        "Where history is kept: postgresql://, mysql://, mariadb:// or sqlite:///. Not set: beside the embedded "
        "server, else nowhere.",
    )
    outbox: str | None = _key(
        None,
        sources.url_or_name(f"{_DUE}, or a name that stands for one", _SCHEMES),
        "The application's database, whose outbox the workers relay: postgresql://, mysql://, mariadb:// or "
        "sqlite:///, a name in app.outbox_databases, or, with Django, an alias of DATABASES. Not set: none.",
    )
    history: Literal["on", "best_effort", "off"] = _key(
        "on",
        sources.choice("on", "best_effort", "off"),
        "Whether tracked jobs are recorded in SQL, where a database is known. When the stream is full, on refuses "
        "tracked pushes, best_effort leaves them out of history.",
    )
    history_bytes: int = _key(
        256 * 1024**2,
        sources.amount(1024**2, 1024**4),
        'Most bytes that wait on the server to be recorded, such as "256MB".',
    )
    history_keep: float = _key(
        180 * 86400.0, sources.seconds(0, 100 * YEAR), "How long the record keeps a job that has ended."
    )
    history_keep_status: Mapping[str, float] = _key(
        {}, _durations(ENDED, 100 * YEAR), "The same by status, such as {finished = 604800}; the rest as history_keep."
    )
    api_token: tuple[str, ...] = _key(
        (),
        _tokens(),
        "The token, or several, that henchman.web.api asks for; each of 16 to 200 characters.",
    )
    console_password: str | None = _key(
        None,
        _password(),
        "The password of the console, of 8 characters or more: whoever has it may look and act. Not set: the console "
        "answers its own machine alone.",
    )
    console_look_password: str | None = _key(
        None, _password(), "The password of those who may look at the console, and not act."
    )
    console_links: Mapping[str, str] = _key(
        {}, sources.links(), 'Other sites that the console\'s pages lead to, by name: logs = "https://…?q={jid}".'
    )
    console_extensions: tuple[str, ...] = _key(
        ("*",), sources.words(), "What of other packages the console shows, by name."
    )
    encryption_keys: Mapping[str, str] = _key(
        {},
        _encryption_keys(),
        "The keys for encrypt= by their ids: new arguments are sealed with the first, any opens what it sealed.",
    )
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)

    @classmethod
    def load(
        cls,
        *,
        start: Path | None = None,
        env: Mapping[str, str] | None = None,
        arguments: Mapping[str, object] | None = None,
    ) -> Self:
        """The settings as they stand here and now: file (searched from ``start``, the working folder), environment,
        arguments. ConfigError names an unknown key or a wrong value, and where it was found."""
        here = Path.cwd()
        layers = (
            sources.file_layer(start or here, KEYS),
            sources.environment_layer(os.environ if env is None else env, here, KEYS),
            _argument_layer(arguments or {}, here),
        )
        return cls()._over(*layers)

    def with_arguments(self, **arguments: object) -> Self:
        """The same settings with some replaced; None and UNSET replace nothing."""
        return self._over(_argument_layer(arguments, Path.cwd()))

    def describe(self) -> list[Setting]:
        """Every setting with its value as text (passwords masked), its origin and its help, in the order above."""
        return [
            Setting(name, value_text(name, getattr(self, name)), self.origins.get(name, DEFAULT), HELP[name])
            for name in KEYS
        ]

    def server_folder(self) -> Path:
        """The embedded server's folder: ``folder``, or ``.henchman`` in the project that the working folder is in."""
        return self.folder or sources.project_folder(Path.cwd()) / ".henchman"

    @property
    def process_tag(self) -> str:
        """The word that names this deployment in process lists: ``tag``, or the name of the working folder."""
        return self.tag or Path.cwd().name

    def history_url(self) -> str | None:
        """The address of the database to record into; None when history is off."""
        return None if self.why_history_is_off() else self._unchecked_history_url()

    def history_kept(self) -> str:
        """How the scripts are to keep history: ``strict`` or ``best_effort``, and bytes; empty when it is off."""
        if self.history_url() is None:
            return ""
        return f"{'best_effort' if self.history == 'best_effort' else 'strict'} {self.history_bytes}"

    def why_history_is_off(self) -> str:
        """Empty when history is on; else the reason and how to turn it on. Reads no file and opens nothing."""
        if self.history == "off":
            return 'history is off: history = "off"'
        url = self._unchecked_history_url()
        if url is None:
            return "history is off: set database_url (postgresql://, mysql://, mariadb:// or sqlite:///) to turn it on"
        if importlib.util.find_spec("sqlalchemy") is None or importlib.util.find_spec("alembic") is None:
            return f"history is off: {mask_url(url)} needs SQLAlchemy and Alembic (pip install 'henchman[sql]')"
        return ""

    def _unchecked_history_url(self) -> str | None:
        if self.database_url is not None:
            return self.database_url
        if self.redis_url is not None or not self.embedded:
            return None
        return f"sqlite:///{self.server_folder() / FILE}"

    def to_json(self) -> str:
        """The settings and their origins as text for a child process. It holds passwords: not for a log."""
        values = {name: getattr(self, name) for name in KEYS if getattr(self, name) is not None}
        return json.dumps({"values": values, "origins": dict(self.origins)}, default=str)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """What ``to_json`` wrote."""
        held = json.loads(text)
        values = held["values"]
        layer = Layer(values, {name: held["origins"].get(name, DEFAULT) for name in values}, Path("/"))
        return cls()._over(layer)

    def __repr__(self) -> str:
        plain = type(self)()
        shown = [
            f"{name}={value_text(name, getattr(self, name))}"
            for name in KEYS
            if getattr(self, name) != getattr(plain, name)
        ]
        return f"Config({', '.join(shown)})"

    def _over(self, *layers: Layer) -> Self:
        values = {name: getattr(self, name) for name in KEYS}
        origins = {name: self.origins.get(name, DEFAULT) for name in KEYS}
        for layer in layers:
            for name in layer.values:
                values[name] = sources.read_value(name, KINDS[name], layer)
                origins[name] = layer.origins[name]
        _check_together(values, origins)
        return type(self)(**values, origins=origins)


def value_text(name: str, value: object) -> str:
    """``value`` of the setting ``name`` as people read it: passwords masked, the unit added."""
    kind = KINDS[name]
    match value:
        case None | () | "":
            return "not set"
        case bool():
            return "true" if value else "false"
        case tuple():
            return ", ".join(kind.hide(str(one)) for one in value)
        case float() | int() if kind.show is not None:
            return kind.show(value)
        case Mapping() if kind.show is not None:
            return ", ".join(f"{one} {kind.show(amount)}" for one, amount in value.items()) or "not set"
    return kind.hide(str(value))


def _argument_layer(arguments: Mapping[str, object], folder: Path) -> Layer:
    values: dict[str, object] = {}
    for given, value in arguments.items():
        name = ARGUMENT_ALIASES.get(given, given)
        if name not in KEYS:
            raise sources.unknown(given, "the arguments", KEYS)
        if value is not None and value is not UNSET:
            values[name] = value
    return Layer(values, dict.fromkeys(values, "argument"), folder)


def _check_together(values: dict[str, Any], origins: dict[str, str]) -> None:
    """What no setting can say alone. A heartbeat that nobody chose follows the lease."""
    if values["timestamps"] == "ms" and values["sidekiq"] != "8":
        raise ConfigError(
            f'timestamps = ms ({origins["timestamps"]}) can only be read by Sidekiq 8: set sidekiq = "8" too, '
            f"or leave timestamps out (sidekiq is {values['sidekiq']}, {origins['sidekiq']})"
        )
    _check_wait(values, origins)
    if origins["heartbeat"] == DEFAULT:
        values["heartbeat"] = min(CONFIG_FIELDS["heartbeat"].default, values["lease"] / 3)


def _check_wait(values: dict[str, Any], origins: dict[str, str]) -> None:
    if origins["wait_timeout"] == DEFAULT:
        values["wait_timeout"] = min(CONFIG_FIELDS["wait_timeout"].default, values["io_timeout"] / 2)
    elif values["wait_replicas"] and values["wait_timeout"] >= values["io_timeout"]:
        raise ConfigError(
            f"wait_timeout = {values['wait_timeout']:g} ({origins['wait_timeout']}) must be shorter than io_timeout, "
            f"{values['io_timeout']:g} s ({origins['io_timeout']}): the answer comes only after it"
        )


CONFIG_FIELDS = {one.name: one for one in fields(Config) if one.name != "origins"}
KEYS = tuple(CONFIG_FIELDS)
KINDS: dict[str, Kind] = {name: one.metadata["kind"] for name, one in CONFIG_FIELDS.items()}
HELP: dict[str, str] = {name: one.metadata["help"] for name, one in CONFIG_FIELDS.items()}
