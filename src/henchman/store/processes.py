"""The records of processes as calls: Sidekiq's heartbeat (wire format, section 11)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from henchman.store.call import Arg, Call, command, commands, script
from henchman.store.keys import Keys
from henchman.store.queues import raw
from henchman.store.scripts import load

__all__ = ["Beat", "beat", "forget", "gone", "members", "prune_lock", "record", "remove"]

_BEAT = load("beat")
_LIFE = 60  # seconds at least: a record that nobody renews is gone


class Beat(NamedTuple):
    """What a beat brought back: signals that were waiting for us, oldest first."""

    first: bool
    signals: list[bytes]


def beat(
    keys: Keys,
    identity: str,
    facts: Mapping[str, Arg],
    work: Mapping[str, bytes],
    *,
    old_work: bool,
    every: float = 0.0,
) -> Call[Beat]:
    """Write the record and the running jobs of a process, which beats each ``every`` seconds; ``old_work``: also for
    readers up to 6.4.1."""
    work_keys = (keys.work(identity), keys.workers(identity)) if old_work else (keys.work(identity),)
    names = [keys.processes, keys.process(identity), keys.signals(identity), *work_keys]
    args: list[Arg] = [identity, max(_LIFE, int(3 * every))]
    for which, table in (("record", facts), ("work", work)):
        for name, value in table.items():
            args += (which, name, value)
    return script(_BEAT, names, args, lambda reply: Beat(not reply[0], list(reversed(reply[1:]))), again=True)


def remove(keys: Keys, identity: str) -> Call[Any]:
    """Take a stopped process off the list."""
    return commands(
        ("SREM", keys.processes, identity),
        ("ZREM", keys.stopping, identity),
        ("UNLINK", keys.work(identity), keys.workers(identity), keys.process(identity)),
    )


def members(keys: Keys) -> Call[list[str]]:
    """The identities on the list, sorted; some may have died since."""

    def read(reply: Any) -> list[str]:
        return sorted(one.decode("utf-8", "surrogateescape") for one in reply)

    return command("SMEMBERS", keys.processes, decode=read)


def record(keys: Keys, identity: str) -> Call[tuple[dict[str, str], dict[str, bytes]]]:
    """The record of a process and its running jobs by slot; both empty when it is gone."""

    def read(replies: list[Any]) -> tuple[dict[str, str], dict[str, bytes]]:
        facts, work = (_pairs(reply) for reply in replies)
        return {name: value.decode("utf-8", "replace") for name, value in facts.items()}, work

    return commands(("HGETALL", raw(keys.process(identity))), ("HGETALL", raw(keys.work(identity))), decode=read)


def _pairs(flat: list[bytes]) -> dict[str, bytes]:
    return {flat[i].decode("utf-8", "replace"): flat[i + 1] for i in range(0, len(flat), 2)}


def prune_lock(keys: Keys) -> Call[bool]:
    """Whether it is our turn to prune dead members, at most once a minute for all."""
    return command("SET", keys.process_cleanup, "1", "NX", "EX", 60, decode=bool, again=False)


def gone(keys: Keys, identities: Sequence[str]) -> Call[list[str]]:
    """Those of ``identities`` (at least one) whose record is gone, asked for in one write."""

    def read(answers: list[int]) -> list[str]:
        return [one for one, there in zip(identities, answers, strict=True) if not there]

    return commands(*(("EXISTS", raw(keys.process(one))) for one in identities), decode=read)


def forget(keys: Keys, identities: Iterable[str]) -> Call[Any]:
    """Take dead members off the list."""
    return command("SREM", keys.processes, *map(raw, identities))
