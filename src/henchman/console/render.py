"""Templates, and how facts look in them: times, counts, names in addresses, arguments as a tree.

Everything is escaped where it is written; a name may hold any character.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from importlib.metadata import version
from importlib.resources import files
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.filters import do_mark_safe

from henchman.console.trace import folded
from henchman.inspector.base import argument_text
from henchman.inspector.blocked import Blocker
from henchman.inspector.filters import TERMS
from henchman.inspector.obstacles import Obstacle
from henchman.inspector.pauses import why_paused
from henchman.kernel.figures import figure, since, size, span, utc
from henchman.kernel.text import shorten, visible
from henchman.wire import times
from henchman.work.outcome import cause_of_name

__all__ = [
    "ASSETS",
    "BUILD",
    "NAME",
    "NAV",
    "SHELF",
    "Asset",
    "Links",
    "addressed",
    "below",
    "links_elsewhere",
    "named",
    "place_of",
    "render",
    "shelf_of",
    "tilde",
]

#: where, in the scope of a request, the name of this console stands, and the places of all beside it
SHELF: Final = "henchman.consoles"

#: a name that others give, and that stands in an address as it is
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,39}")
_PLAIN: Final = re.compile(r"[^A-Za-z0-9._-]")
_TILDE: Final = re.compile(r"~([0-9a-fA-F]{2})")
_MOMENT: Final = re.compile(r"\b(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z)(?:, in [\d a-z.]+$)?")
_MOST_TEXT: Final = 8000  # characters of arguments that a page shows; each may take six bytes of it
_TYPES: Final = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}

#: every page: group → address, title and the letter behind g
NAV: Final = (
    ("Now", (("", "Overview", "o"), ("errors", "Errors", "e"), ("busy", "Busy", "b"))),
    (
        "Work",
        (
            ("queues", "Queues", "q"),
            ("batches", "Batches", "t"),
            ("ordered", "Ordered queues", "w"),
            ("retries", "Retries", "r"),
            ("scheduled", "Scheduled", "s"),
            ("dead", "Dead", "d"),
            ("blocked", "Blocked", "p"),
            ("keys", "Keys", "k"),
            ("limits", "Limits", "l"),
            ("pauses", "Pauses", "u"),
        ),
    ),
    ("Plan", (("crons", "Crons", "c"),)),
    (
        "Look back",
        (
            ("metrics", "Metrics", "m"),
            ("history", "History", "h"),
            ("operations", "Operations", "x"),
            ("audit", "Audit", "a"),
        ),
    ),
    ("Ground", (("system", "System", "y"),)),
)


class Asset(NamedTuple):
    """A file that browsers load: its bytes and what it is."""

    body: bytes
    media_type: str


def _assets() -> dict[str, Asset]:
    found = {}
    for one in files("henchman.console").joinpath("static").iterdir():
        ending = one.name.rpartition(".")[2]
        if ending in _TYPES:
            found[one.name] = Asset(one.read_bytes(), _TYPES[ending])
    return found


#: name → file
ASSETS: Final[Mapping[str, Asset]] = _assets()
#: what stands in the addresses of assets: another one when any of them changed
BUILD: Final = sha256(b"".join(ASSETS[name].body for name in sorted(ASSETS))).hexdigest()[:10]


def tilde(name: str) -> str:
    """A name as a part of a path: other bytes than letters, digits and ``._-`` as ``~XX``. It survives every proxy."""
    return _PLAIN.sub(lambda one: "".join(f"~{byte:02X}" for byte in one[0].encode("utf-8", "surrogatepass")), name)


def named(text: str) -> str:
    """The name that ``tilde`` wrote."""
    raw = _TILDE.sub(lambda one: chr(int(one[1], 16)), text)
    try:
        return raw.encode("latin-1").decode("utf-8", "replace")
    except UnicodeEncodeError:
        return raw


class Links:
    """Addresses below the place where the console is mounted."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix.rstrip("/")

    def __call__(self, page: str = "", *names: str, **query: Any) -> str:
        """``links("queues", "mail", p=2)``."""
        path = "/".join([self.prefix, *([page] if page else []), *map(tilde, names)])
        said = {name: value for name, value in query.items() if value not in (None, "", 1, "1")}
        return (path if page else path + "/") + (f"?{urlencode(said)}" if said else "")

    def asset(self, name: str) -> str:
        """A file that may be kept for ever: its address changes with it."""
        return f"{self.prefix}/static/{BUILD}/{name}"


def below(scope: Mapping[str, Any]) -> tuple[str, str]:
    """Where we are mounted, by the scope of a request, without a slash at its end, and the path below."""
    prefix, path = scope.get("root_path", "").rstrip("/"), scope["path"]
    return prefix, path[len(prefix) :] if prefix and f"{path}/".startswith(f"{prefix}/") else path


def addressed(scope: Mapping[str, Any]) -> tuple[Links, list[str] | None]:
    """Where we are mounted, and the parts of the address below; None: it is no address of ours."""
    prefix, path = below(scope)
    parts = [named(one) for one in path.split("/") if one]
    return Links(prefix), parts if len(parts) < 8 else None


def shelf_of(scope: Mapping[str, Any], page: str = "") -> tuple[str, dict[str, str]]:
    """The name of this console among several, and the same page of each; of one alone nothing."""
    name, places = scope.get(SHELF, ("", {}))
    return name, {other: place + page for other, place in places.items()}


def place_of(one: Blocker | Obstacle) -> tuple[str, ...]:
    """The page of what a job waits for, or lacks: the words of its address; none where it has none."""
    if isinstance(one, Obstacle):
        if one.blocker is not None:
            return place_of(one.blocker)
        return tuple(filter(None, (one.about, one.name)))
    if one.lock == "limit":
        return ("limits", one.scope, one.key) if one.key else ("limits", one.scope)
    if one.lock == "pause":
        return ("pauses",) if ":" in one.key else ("batches", one.key)
    if one.scope.startswith("batch:"):
        return ("batches", one.scope.removeprefix("batch:"))
    if not one.lock and (one.jid or not one.scope):
        return ("jobs", one.jid or one.key)
    return ("keys", one.scope, one.key)


# ---- facts as text


def pretty(value: Any) -> str:
    """JSON as people read it, cut where it is very long."""
    text = json.dumps(value, ensure_ascii=False, indent=2, default=str)
    shown = visible_lines(text[:_MOST_TEXT])[:_MOST_TEXT]  # an escape takes up to six characters
    return shown if len(text) <= _MOST_TEXT else f"{shown}\n… {len(text) - _MOST_TEXT:,} more characters"


def dotted(text: str) -> str:
    """A dotted name that may go on in another line after each dot and underscore."""
    return do_mark_safe(re.sub(r"[._](?=.)", r"\g<0><wbr>", html.escape(text)))


def visible_lines(text: str) -> str:
    """``visible`` line by line: breaks stay, every other control and direction mark is an escape."""
    return "\n".join(map(visible, text.split("\n")))


def timed(text: str, now: float) -> str:
    """A sentence with its moments as people read them, and how far away they are."""

    def readable(found: re.Match[str]) -> str:
        at = times.read(found[1])
        return found[0] if at is None else f"{utc(at)} ({since(at, now)})"

    return _MOMENT.sub(readable, text)


#: why a run did not end well, for people; of an error its text says more
CAUSE_WORDS: Final = {
    "timeout": "it ran longer than it may",
    "crash": "its process ended",
    "hang": "its process had stopped turning, and was killed",
    "memory": "there was no memory left",
    "stop": "its worker stopped",
    "cancelled": "it was cancelled",
    "poison": "process after process died with it",
    "deadline": "its time for all attempts was over",
    "limit": "its limits had no place for it as long as it wanted to wait",
}


def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("henchman.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "figure": figure,
        "span": span,
        "utc": utc,
        "iso": lambda at: times.iso(at) or "",
        "since": since,
        "limit": lambda seconds: span(seconds) if seconds < math.inf else "any limit",
        "shown": lambda text: visible(str(text)),
        "lines": visible_lines,
        "cut": lambda text, most=160: visible(shorten(str(text), most)),
        "size": size,
        "dotted": dotted,
        "timed": timed,
        "pretty": pretty,
        "why_paused": why_paused,
    }
    made.globals |= {
        "cause_words": CAUSE_WORDS,
        "cause_of_name": cause_of_name,
        "cause_search": "cause:{}".format,
        "search_terms": [f"{one}." if kind == "path" else f"{one}:" for one, kind in TERMS.items()],
    }
    made.globals |= {"version": version("henchman"), "argument_text": argument_text, "folded": folded}
    return made


_ENVIRONMENT: Final = _environment()


def render(template: str, facts: Mapping[str, Any]) -> str:
    """The page."""
    return _ENVIRONMENT.get_template(template).render(facts)


# ---- other sites, which know more of a job: its logs, its trace, a ticket

_FIELD = re.compile(r"\{(\w+)\}")


def links_elsewhere(templates: Mapping[str, str], **known: str | Iterable[str] | None) -> list[tuple[str, str]]:
    """(name, address) of each of ``console_links`` whose every field is known here. Of several values (the queues of an
    error) the only one counts."""
    values = {name: quote(_only(value), safe="") for name, value in known.items()}
    return [
        (name, _FIELD.sub(lambda match: values[match[1]], address))
        for name, address in templates.items()
        if all(values.get(field) for field in _FIELD.findall(address))
    ]


def _only(value: str | Iterable[str] | None) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    some = list(value)
    return some[0] if len(some) == 1 else ""
