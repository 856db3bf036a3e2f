"""Arguments that nobody can read who has not the key: sealed where a job is pushed, opened where it runs.

A sealed value travels as a text, ``encrypted:<id of the key>:<token>``. The token is Fernet's, of the library
``cryptography`` (AES-128 in CBC mode under HMAC-SHA256, https://github.com/fernet/spec): confidential, and whoever
changes it is found out. What is sealed is the JSON that would have travelled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from henchman.errors import ArgumentError, ConfigError, DefinitionError
from henchman.wire import jsontext
from henchman.wire.secret import SEALED, is_sealed
from henchman.wire.types import Codec

__all__ = ["Keyring", "Sealing", "sealing_of"]

_HOW = 'encryption_keys = {"2026-11" = "…"}, or HENCHMAN_ENCRYPTION_KEYS=2026-11=…; a key is 32 random bytes as '
_HOW += "URL-safe base64, as cryptography.fernet.Fernet.generate_key() makes it"


class Keyring:
    """The keys of an app by their ids. ``keys()``: id → key, as ``config`` checked them; new values are sealed with the
    first one."""

    def __init__(self, keys: Callable[[], Mapping[str, str]]) -> None:
        self._keys = keys

    def check(self) -> None:
        """ConfigError when there is no key."""
        if not self._keys():
            raise ConfigError(f"a job has encrypted arguments, and no key is set: {_HOW}")

    def seal(self, text: bytes) -> str:
        """``text`` as it travels; ConfigError when there is no key."""
        self.check()
        id, key = next(iter(self._keys().items()))
        token: bytes = _fernet(key).encrypt(text)
        return f"{SEALED}{id}:{token.decode()}"

    def open(self, sealed: str, name: str) -> bytes:
        """What was sealed as the argument ``name``; ArgumentError when its key is not here, or does not fit."""
        id, _, token = sealed.removeprefix(SEALED).partition(":")
        key = self._keys().get(id)
        if key is None:
            known = ", ".join(self._keys()) or "none"
            raise ArgumentError(
                f"{name} is encrypted with the key {id[:40]!r}, which this process does not have (it has {known}): add "
                "it to encryption_keys and restart; the job is tried again as its retries say"
            )
        try:
            opened: bytes = _fernet(key).decrypt(token)
        except load().InvalidToken:
            raise ArgumentError(
                f"{name} cannot be decrypted with the key {id!r}: this is another key of that name, or the value was "
                "changed on its way"
            ) from None
        return opened


def load() -> Any:
    """``cryptography.fernet``, imported by the first job that encrypts; ImportError without the extra."""
    from cryptography import fernet

    return fernet


@lru_cache(maxsize=100)
def _fernet(key: str) -> Any:
    return load().Fernet(key)


class Sealing(NamedTuple):
    """Which parameters of a job are encrypted, and with which keys; ``sealing_of`` makes it."""

    names: frozenset[str]
    keyring: Keyring

    def opened(self, name: str, value: Any) -> Any:
        """An argument as it would have travelled unsealed. One that came unsealed is taken as it is, so that jobs run
        which were pushed before their parameter was encrypted, or by others."""
        return jsontext.read(self.keyring.open(value, name)) if is_sealed(value) else value

    def codec(self, name: str, inner: Codec) -> Codec:
        """``inner``, sealed: of the parameter ``name``."""

        def encode(value: Any) -> str:
            return self.keyring.seal(jsontext.dumps(value if inner.encode is None else inner.encode(value)))

        def decode(value: Any) -> Any:
            one = self.opened(name, value)
            return one if inner.decode is None else inner.decode(one)

        return Codec(inner.name, inner.kinds, inner.takes, encode, decode)


def sealing_of(
    job: str, encrypt: Collection[str] | bool, parameters: Collection[str], keyring: Keyring
) -> Sealing | None:
    """What ``encrypt=`` of a definition means: these parameters, all of them, or none. DefinitionError when it names
    none of ``parameters``, or the library is missing."""
    if not encrypt:
        return None
    names = frozenset(parameters if isinstance(encrypt, bool) else encrypt)
    if unknown := names.difference(parameters):
        raise DefinitionError(f"{job}: encrypt={sorted(unknown)!r} names no parameter; it has {list(parameters)!r}")
    try:
        load()
    except ImportError as error:
        raise DefinitionError(f"{job}: encrypt= needs pip install 'henchman[encryption]' ({error})") from None
    return Sealing(names, keyring)
