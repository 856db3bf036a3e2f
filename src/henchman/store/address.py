"""A server's URL, read once: what redis-py makes of it, and what of it is ours to decide.

Limits and timings come from the configuration unless the URL names them; how answers are read and what is sent again
is never the URL's to say. The password is never repeated in an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis
from redis.connection import parse_url

from henchman.errors import ConfigError
from henchman.kernel.text import mask_url, unquoted_login
from henchman.store.sentinel import SCHEME, SYNC, Sentinels, World, read_sentinel_url

__all__ = ["check_url", "connection_options", "read_options"]

_parse: Callable[[str], dict[str, Any]] = parse_url

_SCHEMES = ("redis://", "rediss://", "unix://", SCHEME)
_LATER = {"cluster://": "a later release"}
_ALL = f"{', '.join(_SCHEMES[:-1])} or {_SCHEMES[-1]}"
_FORM = "redis://[[user]:password@]host[:port][/db]"
_OURS = {
    *("decode_responses", "encoding", "encoding_errors", "health_check_interval", "legacy_responses"),
    *("protocol", "retry", "retry_on_error", "retry_on_timeout", "max_connections", "timeout"),
}


def check_url(url: str) -> str:
    """``url`` itself; ConfigError when no connection can be made from it."""
    connection_options(url)
    return url


def connection_options(url: str) -> tuple[type[Any], dict[str, Any]]:
    """redis-py's connection class for ``url`` and the arguments it is made with; ConfigError names what is wrong."""
    shown = mask_url(url)
    for scheme, issue in _LATER.items():
        if url.startswith(scheme):
            raise ConfigError(f"{shown}: {scheme} comes with {issue}; use {_ALL}")
    if not url.startswith(_SCHEMES):
        raise ConfigError(f"{shown!r} is not a server's address: it must begin with {_ALL}")
    if why := unquoted_login(url):
        raise ConfigError(f"{shown} cannot be read: {why}")
    kind, options = read_options(_parse, url, SYNC)
    try:
        kind(**options)  # connects nowhere: it only takes its arguments
    except (TypeError, ValueError, redis.RedisError) as error:
        raise ConfigError(f"{shown}: an option of this address is unknown or wrong: {error}") from None
    return kind, options


def read_options(parse: Callable[[str], Any], url: str, world: World) -> tuple[type[Any], dict[str, Any]]:
    """What redis-py's ``parse`` reads out of ``url``, with the class of ``world`` that connects to it."""
    led = read_sentinel_url(url) if url.startswith(SCHEME) else None
    try:
        options = dict(parse(url if led is None else led.server_url))
    except ValueError as error:
        said = str(error)  # of what it cannot read at all, the parser quotes a part: that may be a password
        why = said if said.startswith("Invalid value for") else f"the form is {_FORM}"
        raise ConfigError(f"{mask_url(url)} cannot be read: {why}") from None
    ours = sorted(options.keys() & _OURS)
    if ours:
        raise ConfigError(f"{mask_url(url)}: leave {', '.join(ours)} out of the address; Henchman decides that")
    kind = options.pop("connection_class", world.plain)
    if led is None:
        return kind, options
    return world.led_tls if kind is world.tls else world.led, options | {"sentinels": Sentinels(led, world, options)}
