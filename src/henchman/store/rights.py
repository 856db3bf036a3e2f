"""What a user of the server must be allowed, by role: the lines of docs/rights.md, and what ``henchman doctor`` tries.

Nothing here is of the categories @dangerous or @admin: a server hardened with ``-@dangerous`` needs no exception. What
is done better where more is allowed stands in ``WELCOME``; without it everything works.
"""

from __future__ import annotations

from collections.abc import Mapping

from henchman.store.call import Arg, Call, commands
from henchman.store.keys import Keys

__all__ = ["ROLES", "UNTRIED", "WELCOME", "line", "trial"]

_TALK = "discard eval evalsha exec multi ping select subscribe time unsubscribe"
_PUSH = """
    del exists expire get hdel hexists hget hgetall hincrby hkeys hlen hmget hset hsetnx hvals incr incrby llen lpop
    lpush lrange ltrim persist publish rename rpush sadd set smembers ttl unlink xadd zadd zcard zmscore zpopmin zrange
    zrem zremrangebyrank zremrangebyscore zscore zunionstore
"""
_MOVE = """
    bitfield decrby hscan lindex lpos lrem mget pexpire pttl sismember srem xlen xrange xtrim zcount zrangebyscore
    zrevrange zscan
"""
_WORK = "blmove bzpopmin client|id xread"

#: the commands that each role needs
ROLES: Mapping[str, tuple[str, ...]] = {
    "producer": tuple(sorted(f"{_TALK} {_PUSH}".split())),
    "worker": tuple(sorted(f"{_TALK} {_PUSH} {_MOVE} {_WORK}".split())),
    "console": tuple(sorted(f"{_TALK} {_PUSH} {_MOVE}".split())),
}
#: what is better with it: command → what is done without
WELCOME: Mapping[str, str] = {
    "client|unblock": "a stop closes its waits and leaves their lists to be swept for an hour",
    "info": "doctor cannot say how the server is; a broken connection begins a watch over the dead anew",
    "config|get": "doctor cannot say how the server is set up",
    "wait": "wait_replicas cannot be used",
    "role": "of a master that sentinels name it is not asked whether it is one",
}

_ONE_WORD = """
    bzpopmin decrby expire hdel hexists hget hmget hscan incrby lindex lpop lpos lpush pexpire rename rpush sadd set
    sismember srem zmscore zrem zscan zscore
"""
_TWO_WORDS = """
    hincrby hset hsetnx lrange lrem ltrim xrange xtrim zadd zcount zrange zrangebyscore zremrangebyrank zremrangebyscore
    zrevrange
"""
_WORDS: Mapping[str, tuple[Arg, ...]] = {  # what follows the key, where that is not nothing
    **dict.fromkeys(_ONE_WORD.split(), ("1",)),
    **dict.fromkeys(_TWO_WORDS.split(), ("1", "1")),
    "bitfield": ("GET", "u8", "0"),
    "xadd": ("*", "1", "1"),
}
_KEYLESS: Mapping[str, tuple[Arg, ...]] = {
    "ping": (),
    "time": (),
    "role": (),
    "info": (),
    "eval": ("return 1", 0),
    "evalsha": ("0" * 40, 0),
    "select": (0,),
    "client|id": (),
    "client|unblock": ("1",),
    "config|get": ("save",),
    "wait": (0, 1),
}
UNTRIED = frozenset({"multi", "exec", "discard", "unsubscribe"})  # what a trial is made of, or what needs no right


def line(role: str, user: str, keys: Keys) -> str:
    """What to type into the server so that ``user`` may be a ``role``, and nothing else."""
    every = f"{keys.prefix}*"
    allowed = " ".join(f"+{one}" for one in ROLES[role])
    return f"ACL SETUSER {user} on >PASSWORD resetkeys ~{every} resetchannels &{every} -@all {allowed}"


def trial(keys: Keys, name: str) -> Call[object]:
    """Ask whether ``name`` is allowed, and do nothing: it is queued in a transaction that is discarded. ServerError
    says that it is not."""
    return commands(("MULTI",), _form(keys, name), ("DISCARD",))


def _form(keys: Keys, name: str) -> tuple[Arg, ...]:
    words = name.upper().split("|")
    probe = keys.lifeline  # any key: nothing is done to it
    if name in _KEYLESS:
        return (*words, *_KEYLESS[name])
    if name == "subscribe":
        return (*words, keys.control_all)
    if name == "publish":
        return (*words, keys.control_all, "")
    if name == "blmove":
        return (*words, probe, probe, "LEFT", "LEFT", 1)
    if name in ("rename", "zunionstore"):
        return (*words, probe, *((1,) if name == "zunionstore" else ()), probe)
    if name == "xread":
        return (*words, "STREAMS", probe, 0)
    return (*words, probe, *_WORDS.get(name, ()))
