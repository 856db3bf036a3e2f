"""``sentinel://``: a server that is found by asking who is the master now, at each connect.

The form, whole: ``sentinel://[[user]:password@]host[:26379][,host…]/NAME[/DB][?options]``. User, password and DB are
the server's; ``sentinel_username`` and ``sentinel_password`` are the sentinels'; ``ssl=true`` speaks TLS with the
server, ``sentinel_ssl=true`` with the sentinels; every other option is as in ``redis://``.

Its limits: an address is never kept for the next connection; only which sentinel answered last (it is asked first), and
which master was found last (idle connections to another one are dropped: while two think that they are master, a
process does not use both for longer than it must). What a sentinel says may be out of date, so the server is asked
too (ROLE). redis-py's own classes for this are not used:
they turn READONLY, which proves that nothing was executed, into a connection that broke, which proves nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

import redis
from redis.backoff import NoBackoff
from redis.connection import Connection, SSLConnection
from redis.maint_notifications import MaintNotificationsConfig
from redis.retry import Retry

from henchman.errors import ConfigError
from henchman.kernel.text import mask_url
from henchman.store.call import drive
from henchman.store.replies import is_answer

SCHEME = "sentinel://"
PORT = 26379
PAUSE = 0.1  # between two questions while nobody is master
_FORM = "sentinel://[:password@]host1:26379,host2,host3/mymaster[/db]"
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.%]+\]|[^\s:\[\]@/]+)(:(?P<port>[0-9]{1,5}))?")
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}

T = TypeVar("T")
Host = tuple[str, int]
Steps = Generator[Callable[[], Any], Any, T]  # each is done now or awaited, see ``store.call.drive``


class World(NamedTuple):
    """Sync or async code: the connection classes, redis-py's own and those that ask sentinels first; how it closes a
    connection, and how it waits."""

    plain: type[Any]
    tls: type[Any]
    led: type[Any]
    led_tls: type[Any]
    quiet: Mapping[str, Any]  # what switches redis-py's own resending off
    hang_up: Callable[[Any], Any]
    sleep: Callable[[float], Any]


class SentinelAddress(NamedTuple):
    """A ``sentinel://`` URL, read. ``server_url`` says all about the server but where it is."""

    name: str
    hosts: tuple[Host, ...]
    login: dict[str, str]
    tls: bool
    server_url: str


def read_sentinel_url(url: str) -> SentinelAddress:
    """What ``url`` says; ConfigError names what is wrong with it, and never a password."""
    shown = mask_url(url)
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ConfigError(f"{shown} cannot be read; the form is {_FORM}") from None
    login, at, hosts = parts.netloc.rpartition("@")
    name, *db = parts.path.removeprefix("/").rstrip("/").split("/")
    if not name:
        raise ConfigError(f"{shown} does not name the master that its sentinels watch; the form is {_FORM}")
    if len(db) > 1 or not all(one.isdecimal() for one in db):
        raise ConfigError(f"{shown}: after the master's name comes nothing but the number of the database")
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    tls, sentinel_tls = (_flag(query.pop(option, "false"), option, shown) for option in ("ssl", "sentinel_ssl"))
    own = {key: query.pop(f"sentinel_{key}") for key in ("username", "password") if f"sentinel_{key}" in query}
    for option in query:
        if option.startswith("sentinel_"):
            raise ConfigError(f"{shown}: there is no {option}; there are sentinel_username, _password and _ssl")
    if not tls and sentinel_tls:
        server_query = {key: value for key, value in query.items() if not key.startswith("ssl_")}
    else:
        server_query = query
    read = tuple(_host(one, shown, after_login=bool(at)) for one in hosts.split(","))
    server = f"redis{'s' if tls else ''}://{login}{at}sentinel/{''.join(db)}?{urlencode(server_query)}"
    return SentinelAddress(unquote(name), read, own, sentinel_tls, server)


def _host(text: str, shown: str, *, after_login: bool) -> Host:
    found = _HOST.fullmatch(text.strip())
    if found is None or not 0 < int(found["port"] or PORT) < 65536:
        masked = text if after_login else mask_url(SCHEME + text).removeprefix(SCHEME)
        raise ConfigError(
            f"{shown}: {masked!r} is not the address of a sentinel (host or host:port); the form is {_FORM}"
        )
    return found["name"].strip("[]"), int(found["port"] or PORT)


def _flag(text: str, option: str, shown: str) -> bool:
    if text.lower() not in _TRUTH:
        raise ConfigError(f"{shown}: {option} must be true or false")
    return _TRUTH[text.lower()]


class Sentinels:
    """Those who know the master of one name, and what became of asking them. Shared by threads."""

    def __init__(self, address: SentinelAddress, world: World, options: Mapping[str, Any]) -> None:
        self.name = address.name
        self.found: Host | None = None  # the master of the latest connection
        self._hosts = list(address.hosts)
        self._world = world
        self._kind = world.tls if address.tls else world.plain
        tls = {key: value for key, value in options.items() if key.startswith("ssl_")} if address.tls else {}
        self._options: dict[str, Any] = {**world.quiet, **tls, **address.login}

    def connect(self, conn: Any, connect: Callable[[], Any], limit: float) -> Steps[None]:
        """Ask, ``connect`` the connection ``conn``, ask the server itself; again while a failover may be under way, for
        ``limit`` seconds."""
        end = time.monotonic() + limit
        while True:
            try:
                conn.host, conn.port = yield from self._find(max(end - time.monotonic(), PAUSE))
                conn.socket_connect_timeout = max(end - time.monotonic(), PAUSE)
                yield connect
                yield from _check_role(conn)
                self.found = (conn.host, conn.port)
                return
            except redis.RedisError as error:
                yield partial(self._world.hang_up, conn)
                if _for_good(error):
                    raise
                if time.monotonic() + PAUSE > end:  # as a time-out it is not tried again
                    raise redis.TimeoutError(f"no master within the time limit: {error}") from error
            yield partial(self._world.sleep, PAUSE)

    def _find(self, limit: float) -> Steps[Host]:
        """Where the master is, by the first sentinel that knows."""
        said: list[tuple[Host, Exception | None]] = []  # without an error: one that does not know the name
        for host, conn in self._lines(limit):
            try:
                yield conn.connect
                yield partial(conn.send_command, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.name)
                answer = yield conn.read_response
            except (redis.RedisError, OSError) as error:
                said.append((host, error))
                continue
            finally:
                yield partial(self._world.hang_up, conn)
            if answer:
                self._hosts = [host, *(one for one in self._hosts if one != host)]  # asked first from now on
                return answer[0].decode(), int(answer[1])
            said.append((host, None))
        raise self._nobody(said)

    def _lines(self, limit: float) -> Iterator[tuple[Host, Any]]:
        """A connection to each, not open yet, the last that answered first; together they take ``limit`` seconds."""
        share = max(limit / len(self._hosts), 0.05)
        for host, port in list(self._hosts):
            yield (
                (host, port),
                self._kind(host=host, port=port, socket_timeout=share, socket_connect_timeout=share, **self._options),
            )

    def _nobody(self, said: list[tuple[Host, Exception | None]]) -> redis.RedisError:
        """What to raise when none of them named a master."""
        texts = (
            f"{host}:{port}: {f'knows no master {self.name!r}' if error is None else error}"
            for (host, port), error in said
        )
        text = "no sentinel names a master: " + "; ".join(texts)
        errors = [error for _, error in said if error is not None]
        if len(errors) == len(said) and all(map(is_answer, errors)):
            refused = any(isinstance(one, redis.AuthenticationError) for one in errors)
            return redis.AuthenticationError(text) if refused else redis.ResponseError(text)
        return NoSentinel(text)


def is_current(conn: Any) -> bool:
    """Whether an idle connection leads to the master that was found last; always, where no sentinels are asked."""
    sentinels: Sentinels | None = getattr(conn, "sentinels", None)
    return sentinels is None or sentinels.found == (conn.host, conn.port)


class NoSentinel(redis.ConnectionError):
    """No sentinel could be asked, or none knows the name: waiting a little helps nobody."""


def _for_good(error: redis.RedisError) -> bool:
    """Whether asking once more would be answered alike: only what a failover mends is worth waiting for."""
    return isinstance(error, NoSentinel | redis.AuthenticationError) or not isinstance(
        error, redis.ConnectionError | redis.TimeoutError
    )


def _check_role(conn: Any) -> Steps[None]:
    """An error when the server that a sentinel named says that it is something else than a master."""
    try:
        yield partial(conn.send_command, "ROLE")
        role = (yield conn.read_response)[0]
    except redis.ResponseError:
        return  # this user may not ask: a replica says so at the first write
    if role != b"master":
        raise redis.ConnectionError(
            f"the sentinels name {conn.host}:{conn.port}, which says that it is a {role.decode()}"
        )


class SentinelConnection(Connection):
    """A connection to whoever is the master when it connects, within ``socket_connect_timeout`` as a whole."""

    def __init__(self, *, sentinels: Sentinels, **options: Any) -> None:
        up: Any = super()  # redis-py types its connections only by half
        up.__init__(**options)
        self.sentinels = sentinels
        self._limit: float = self.socket_connect_timeout or 3.0

    def connect(self) -> None:
        """See ``Sentinels.connect``."""
        if not self._sock:
            up: Any = super()
            drive(lambda step: step(), self.sentinels.connect(self, up.connect, self._limit))


class SentinelTLSConnection(SentinelConnection, SSLConnection):
    """As ``SentinelConnection``, over TLS."""


SYNC = World(
    Connection,
    SSLConnection,
    SentinelConnection,
    SentinelTLSConnection,
    {
        "protocol": 2,
        "driver_info": None,
        "retry": Retry(NoBackoff(), 0),
        "maint_notifications_config": MaintNotificationsConfig(enabled=False),
    },
    hang_up=lambda conn: conn.disconnect(),
    sleep=time.sleep,
)
