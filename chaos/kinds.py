"""Every kind of job that the run pushes: how often, and what must become of one. Producer and judge read this table."""

from __future__ import annotations

from typing import Any, NamedTuple

__all__ = [
    "KEYED",
    "KINDS",
    "LANES",
    "ORDERED",
    "PATIENCE",
    "PLACES",
    "QUEUES",
    "TOLD",
    "KeyedKind",
    "Kind",
    "OrderedKind",
    "kind_of",
    "lane_of",
]

PLACES, LANES = 3, 2  # of the limit "capped": for each lane
QUEUES = ("fast", "slow", "held")  # "held" is paused now and then, so that jobs wait, expire and are cancelled in it


def lane_of(key: str) -> int:
    """Whose places of the limit "capped" a job takes."""
    return int(key.rpartition("-")[2]) % LANES


class Kind(NamedTuple):
    """``attempts`` None: the push says how often it fails first; 0: what it waits for ends so that it never runs.
    ``failures`` is what the server counts as failed."""

    weight: float
    attempts: int | None = 1
    failures: int | None = 0
    dead: bool = False
    status: str = "finished"  # of it in its batch, at the end
    may_not_run: bool = False  # it expires or is cancelled: then it ends without a run
    again: float = 0.0  # seconds that must lie between two attempts
    deadline: float = 0.0  # seconds after its push: then it has ended, expired or dead


KINDS: dict[str, Kind] = {
    "tiny": Kind(40),
    "atiny": Kind(12),
    "nap": Kind(8),
    "anap": Kind(6),
    "later": Kind(8),
    "flaky": Kind(6, attempts=None, failures=None, again=1.0),
    "snoozer": Kind(3, again=1.0),
    "hopeless": Kind(2, attempts=2, failures=2, dead=True, again=1.0, status="error"),
    "slowpoke": Kind(1, attempts=2, failures=2, dead=True, again=1.0, status="error"),
    "astuck": Kind(1, failures=1, status="error"),
    "long": Kind(0.7),
    "along": Kind(0.7),
    "big": Kind(1),
    "huge": Kind(0.06),
    "chatty": Kind(0.25, failures=1, status="error"),
    "refuser": Kind(3, status="failed"),
    "killer": Kind(2, failures=1, dead=True, status="error"),
    "dropper": Kind(2, status="cancelled"),
    "brief": Kind(3, may_not_run=True),
    "doomed": Kind(3, may_not_run=True),
    "capped": Kind(3),  # jobs with limits: a place of three, for each of two lanes
    "acapped": Kind(6),
    "paced": Kind(2),  # at most 20 a second
    "pressed": Kind(2, failures=None, may_not_run=True, deadline=2.0),
    "adder": Kind(0),  # in batches alone
    "mender": Kind(0, failures=1),  # killed by itself; fine when its batch is retried
    "called": Kind(0),  # the callbacks of batches: the server pushes them
    "once": Kind(0, attempts=None, failures=None, again=1.0),  # jobs with a key, from here on: see KEYED
    "oncefail": Kind(0, status="failed"),
    "oncedead": Kind(0, failures=1, dead=True, status="error"),
    "until": Kind(0, attempts=None, failures=None, again=1.0),
    "turn": Kind(0, attempts=None, failures=None, again=1.0),
    "queued": Kind(0),
    "desk": Kind(0),
    "adesk": Kind(0),
    "both": Kind(0),
    "fresh": Kind(0),
    "sold": Kind(0),  # rows of the outbox
    "base": Kind(0, attempts=None, failures=None, again=1.0),  # what others wait for: see dependants.py
    "riser": Kind(0, failures=1),  # it dies, and is fine when it was revived
    "nay": Kind(0, status="failed"),
    "first": Kind(0, attempts=None, failures=None, again=1.0),
    "heir": Kind(0),  # what waits
    "heirs": Kind(0),
    "anyway": Kind(0),
    "second": Kind(0),
    "wreck": Kind(0, failures=1, dead=True),  # dead for good, from here on: policies, see policies.py
    "kept": Kind(0),
    "patient": Kind(0),
    "witness": Kind(0),
    "spared": Kind(0, attempts=0),
    "weary": Kind(0, attempts=0),
    "fallen": Kind(0, attempts=0, dead=True),
    "ruined": Kind(0, attempts=0, dead=True),
    "step": Kind(0, attempts=None, failures=None, again=1.0),  # of workflows
    "stepno": Kind(0, status="failed"),
    "stepdead": Kind(0, failures=1, dead=True, status="error"),
    "stepjoin": Kind(0),
    "stepany": Kind(0),
    "stepoff": Kind(0, attempts=0, status="cancelled"),
    "stepfail": Kind(0, attempts=0, dead=True, status="error"),
}


class KeyedKind(NamedTuple):
    """A kind with a key: how often it is pushed, the options of its job, and what may have its key. ``phases``: o at
    most one job for ever, u one job until it has ended, w one that waits, r one that runs. ``names``: of things; empty:
    new ones all the time, the same for every producer."""

    weight: float
    phases: str
    options: dict[str, Any]
    names: tuple[str, ...] = ()
    scope: str = ""


def _names(many: int) -> tuple[str, ...]:
    return tuple(f"n{number}" for number in range(many))


KEYED: dict[str, KeyedKind] = {
    "once": KeyedKind(8, "o", {"once": True}),
    "oncefail": KeyedKind(2, "o", {"once": True, "on_conflict": "raise"}),
    "oncedead": KeyedKind(1, "o", {"once": True}),
    "until": KeyedKind(3, "u", {"unique": "until_success"}, _names(12)),
    "turn": KeyedKind(2, "u", {"unique": "until_success", "on_conflict": "wait"}, _names(10)),
    "queued": KeyedKind(3, "w", {"unique": "queued"}, _names(10)),
    "desk": KeyedKind(2, "r", {"unique": "running", "scope": "desk"}, _names(10), "desk"),
    "adesk": KeyedKind(2, "r", {"unique": "running", "scope": "desk"}, _names(10), "desk"),
    **dict.fromkeys(("base", "riser", "nay", "wreck"), KeyedKind(0, "o", {"once": True})),
    "spared": KeyedKind(0, "", {"followed": True}),
    "both": KeyedKind(2, "wr", {"unique": ("queued", "running")}, _names(8)),
    "fresh": KeyedKind(3, "wr", {"unique": ("queued", "running"), "on_conflict": "replace"}, _names(8)),
}


#: seconds for which a kind waits for others at most; and what it may be told of them when it runs
PATIENCE = {"patient": 3.0, "weary": 2.0, "witness": 15.0}
TOLD = {"patient": ("finished", "time"), "witness": ("over", "time")}


class OrderedKind(NamedTuple):
    """An ordered queue: how it is defined, and the names of its ids."""

    options: dict[str, Any]
    ids: tuple[str, ...]

    @property
    def max_retries(self) -> int:
        return int(self.options["max_retries"])


ORDERED: dict[str, OrderedKind] = {
    "products": OrderedKind(
        {"claim_size": 5, "payload_cap": 40, "max_retries": 4, "retry_in": 0.5, "timeout": 6.0},
        tuple(f"p{number}" for number in range(100)),
    ),
    "accounts": OrderedKind(
        {"max_parallel": 6, "max_retries": 3, "retry_in": 1.0, "timeout": 6.0, "track": True},
        tuple(f"a{number}" for number in range(100)),
    ),
}


def kind_of(key: str) -> Kind:
    """The kind of the job ``key``: keys are ``<kind>-<producer>-<number>``."""
    return KINDS[key.partition("-")[0]]
