"""Text that comes from elsewhere, made fit to be shown: passwords masked, controls as escapes, long things cut."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from henchman.kernel.rare import load

_IN_TEXT = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*://)(?P<user>[^/?#@:\s]*)(?::(?!\d+[/?#])(?P<password>\S*))?@", re.IGNORECASE
)
_OURS = re.compile(r"(?i)\b(?:rediss?|sentinel|cluster|unix)://\S+")
_QUERY_SECRET = re.compile(r"(?i)([?&][^=&#\s]*pass?w[^=&#\s]*=)[^&#\s]*")  # also misspelt
_WELL_KNOWN = re.compile(  # options of an address that hold no secret
    r"(?i)db|client_name|protocol|timeout|max_connections|encoding\w*|decode_responses|retry\w*|health_check_interval"
    r"|(socket|connect|read|write|pool)_\w+|sentinel_(username|ssl)|ssl|ssl_(?!\w*pass)\w+|sslmode|charset"
    r"|application_name|driver|host|port"
)
_NAMES_USERS = ("postgres", "mysql", "mariadb")  # a name without a password is none there
_AUTHORITY = re.compile(r"(\[[^\]]*\]|[^:@\[\]]*)(:\d*)?")


def mask_url(url: str) -> str:
    """The one address ``url`` with ``***`` for its password, also where that is malformed.

    A password may stand unquoted (with / ? # @), as the user, in place of a host, or in the query, whose values are
    shown only for options that are known to hold none.
    """
    scheme, mark, rest = url.rpartition("://") if "@" not in url.partition("://")[2] else url.partition("://")
    login, at, place = rest.rpartition("@")
    if at and not (scheme.lower().startswith(("unix", "sqlite")) and rest.startswith("/")):
        user, colon, password = login.partition(":")
        known = (password if colon else scheme.lower().startswith(_NAMES_USERS)) and not set(user) & set("/?#@")
        shown = f"{user}:***@" if known and colon else f"{user}@" if known else "***@"
    else:
        shown, place = "", rest
    end = re.search(r"[/?#]", place)
    hosts, tail = (place[: end.start()], place[end.start() :]) if end else (place, "")
    if not shown and not all(_AUTHORITY.fullmatch(one) for one in hosts.split(",")):
        hosts = f"{hosts.partition(':')[0]}:***"
    tail, sharp, _ = tail.partition("#")
    path, ask, query = tail.partition("?")
    options = [part.partition("=") for part in query.split("&")] if ask else []
    known_options = [
        f"{name}{equals}{value if _WELL_KNOWN.fullmatch(name) else '***' if value else ''}"
        for name, equals, value in options
    ]
    return f"{scheme}{mark}{shown}{hosts}{path}{ask}{'&'.join(known_options)}{'#***' if sharp else ''}"


def mask_urls(text: str) -> str:
    """``text`` with the passwords of the addresses in it replaced by ``***``, as far as they can be told apart."""

    def masked(match: re.Match[str]) -> str:
        if match["password"] is None:
            return f"{match['scheme']}{match['user']}@"
        return f"{match['scheme']}{match['user']}:***@"

    if "://" not in text:
        return text
    return _QUERY_SECRET.sub(r"\1***", _IN_TEXT.sub(masked, _OURS.sub(lambda one: mask_url(one[0]), text)))


def unquoted_login(url: str) -> str:
    """What to do when a login in ``url`` holds a character that ends it too early; empty when none does.

    What a parser says of such an address quotes parts of the password: say this in its place.
    """
    scheme, _, rest = url.partition("://")
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority or "@" not in rest or rest.startswith("/"):
        return ""
    path, _, query = rest[len(authority) :].partition("?")
    if scheme.lower() in ("redis", "rediss"):  # their path is a number
        names = [part.partition("=")[0] for part in query.partition("@")[0].split("&")]
        if "@" not in path and all(map(_WELL_KNOWN.fullmatch, names)):
            return ""
    elif ":" not in authority or re.fullmatch(r"[^:]+:\d+", authority):
        return ""  # a host and its port; the @ belongs to what follows
    return "a user or password in an address is percent-encoded: / as %2F, ? as %3F, # as %23, @ as %40, : as %3A"


def visible(text: str) -> str:
    """``text`` with control, bidirectional and other invisible characters as escapes; line feeds and tabs too."""
    if text.isprintable() and text.isascii():
        return text
    category = load("unicodedata").category
    return "".join(
        char.encode("unicode_escape").decode() if category(char) in {"Cc", "Cf", "Cs", "Zl", "Zp"} else char
        for char in text
    )


def plain(value: Any, most: int = 200) -> str:
    """A text as it is; of anything else its ``str``, at most ``most`` characters; nothing for None."""
    return value if isinstance(value, str) else "" if value is None else str(value)[:most]


def shorten(text: str, most: int) -> str:
    """At most ``most`` characters, with an ellipsis where something was cut."""
    return text if len(text) <= most else text[: max(most - 1, 0)] + "…"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """``; did you mean 'x'?`` for the nearest known word, or an empty text."""
    best = nearest(word, known, 0.6)
    return f"; did you mean {best!r}?" if best else ""


def nearest(word: str, known: Iterable[str], alike: float) -> str:
    """The known word that is nearest, and at least so much ``alike`` (0 to 1); else an empty text."""
    difflib = load("difflib")
    near = difflib.get_close_matches(word, list(known), n=3, cutoff=alike)
    return min(near, key=lambda one: (-difflib.SequenceMatcher(None, one, word).ratio(), len(one)), default="")


def count(many: int, one: str, more: str = "", does: str = "") -> str:
    """``1 job``, ``2,000 jobs``; and what they do: ``1 job waits``, ``2,000 jobs wait``."""
    said = f"{many:,} {one if many == 1 else more or one + 's'}"
    verb = {"are": "is", "have": "has"}.get(does, f"{does}s") if many == 1 else does
    return f"{said} {verb}" if does else said


#: seconds of each unit in which people write how long, or how long ago
SECONDS_OF: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}


def seconds_text(seconds: float) -> str:
    """A duration that was set, in the largest unit that divides it: ``180 days``, ``2 h``, ``25 s``."""
    for size, unit in ((86400, "day"), (3600, "h"), (60, "min")):
        if seconds >= size and seconds % size == 0:
            number = int(seconds / size)
            return f"{number:,} {unit}{'s' if unit == 'day' and number > 1 else ''}"
    return f"{seconds:.12g} s"


def bytes_text(size: int) -> str:
    """An amount of memory that was set, in the largest unit that divides it: ``256 MB``, ``1,000 bytes``."""
    for unit, name in ((1024**3, "GB"), (1024**2, "MB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit:,} {name}"
    return f"{size:,} bytes"


def as_shown(value: Any, most: int) -> str:
    """``repr``, cut; never raises."""
    try:
        return str.__str__(repr(value))[:most]
    except BaseException:  # somebody else's __repr__
        return f"({type(value).__name__} cannot be shown: its __repr__ raises)"


def described(error: BaseException, message: Any = None) -> str:
    """``ValueError: what it says``, or ``message`` in place of what it says."""
    text = words_of(error if message is None else message)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def words_of(error: Any) -> str:
    """What it says as plain text; never raises, whatever its own ``__str__`` does."""
    try:
        return str.__str__(str(error))  # a subclass of str has methods of its own
    except BaseException:  # somebody else's __str__
        return "(it cannot be shown: its __str__ raises)"
