"""Deaths of a process, charged to the jobs that it was running: two make a suspect, a third, alone, a poison pill.

Only what had started is charged; of a host that is gone altogether nobody knows what had, so all that it held is. A
process that had been told to stop charges nobody: a job that a deploy cuts off is not to blame.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from henchman.errors import PayloadError, ServerError
from henchman.kernel.text import described, visible
from henchman.store import jobs, ordered
from henchman.store.call import command
from henchman.wire import payload, times
from henchman.work.effects import EndingFacts, batch_of, encoded
from henchman.worker.host import Settler

__all__ = ["charge_held"]

_MARK = 40  # bytes of a jid that a board keeps


def charge_held(
    host: Settler,
    identity: str,
    lists: Iterable[str],
    *,
    started: Collection[bytes] | None,
    alone: bool | None = None,
    cause: str,
    marked: Collection[bytes] = (),
) -> list[str]:
    """Charge what ``identity`` held in its in-flight ``lists``: the jobs of ``started``, or all when that is None, and
    those whose payloads end as one of ``marked``: they were read or settled when it died.

    ``alone``: whether what ran had the process to itself; None: it did if nothing else was held. One line for each job
    that is a suspect or a poison pill by now, for people.
    """
    held: list[tuple[str, bytes]] = []
    claims: list[_Claimed] = []
    for flight in lists:
        if host.keys.is_held(flight):
            claims += _claims(host, flight)
            continue
        found: list[bytes] = host.connections.run(command("LRANGE", flight, 0, -1))
        held += [(flight, one) for one in found]
    if alone is None:
        alone = len(held) + len(claims) == 1
    told = []
    for claim in claims:
        if started is None or claim.jid.encode()[:_MARK] in started:
            told += _charge_ids(host, identity, claim, alone)
    for flight, stored in held:
        line = f"{times.iso(host.clock.now())} {identity} {cause}"
        named = any(map(stored.endswith, marked))
        try:
            told += _charge_one(host, flight, stored, line, alone, None if named else started, named)
        except ServerError:
            raise
        except Exception as error:  # one that cannot be charged goes back like the others
            told.append(f"a job could not be charged with the death of its process: {described(error)}")
    return told


def _charge_one(
    host: Settler, flight: str, stored: bytes, line: str, alone: bool, started: Collection[bytes] | None, named: bool
) -> list[str]:
    """Charge one if it is among ``started`` (None: whatever it is); ``named``: also one that has no id."""
    try:
        job = payload.decode(stored)
    except PayloadError:
        return []  # it never starts: how it ends is decided when it is fetched
    jid = str(job.get("jid") or (payload.name_of(stored) if named else ""))
    if jid and (started is None or jid.encode("utf-8", "replace")[:_MARK] in started):
        return _charge(host, flight, stored, job | {"jid": jid}, line, alone)
    return []


def _why(dead: dict[str, object]) -> EndingFacts:
    return EndingFacts(detail={"error_class": dead["error_class"], "message": dead["error_message"]})


class _Claimed(NamedTuple):
    held_key: str
    queue: str
    token: bytes
    jid: str
    ids: list[bytes]


def _claims(host: Settler, held_key: str) -> list[_Claimed]:
    """What is noted as held of an ordered queue, claim by claim."""
    queue = host.keys.queue_of_flight(held_key)
    by_token: dict[bytes, list[bytes]] = {}
    for one, token in host.connections.run(ordered.held(held_key)).items():
        by_token.setdefault(token, []).append(one)
    return [
        _Claimed(held_key, queue, token, ordered.claim_jid(queue, int(token)), ids) for token, ids in by_token.items()
    ]


def _charge_ids(host: Settler, identity: str, claim: _Claimed, alone: bool) -> list[str]:
    """Free the ids of one claim with a death each; a third one, alone, counts as a failure when it is claimed next."""
    pairs = [(one, claim.token) for one in claim.ids]
    ordered.free_all(
        host.connections, host.keys, identity, claim.held_key, claim.queue, pairs, charge=True, alone=alone
    )
    names = ", ".join(visible(one.decode("utf-8", "replace")) for one in claim.ids[:5])
    return [f"its process died while it ran ids {names} of the ordered queue {claim.queue}"]


def _charge(host: Settler, flight: str, stored: bytes, job: dict[str, object], line: str, alone: bool) -> list[str]:
    config, jid = host.config, str(job["jid"])
    lines = [*host.connections.run(jobs.deaths(host.keys, jid)), line]
    now = float(times.write(host.clock.now(), "seconds"))
    dead = job | {
        "queue": job.get("queue") or host.keys.queue_of_flight(flight),
        "error_class": "PoisonPill",
        "error_message": f"its process died {len(lines)} times while it ran: {'; '.join(lines)}"[:10_000],
        "failed_at": job.get("failed_at") or now,
        "retry_count": job.get("retry_count", 0),
    }
    if dead["retry_count"]:
        dead.setdefault("retried_at", now)
    count = host.connections.run(
        jobs.charge(
            host.keys,
            flight,
            jid,
            line.encode("utf-8", "replace"),
            stored,
            payload.encode(dead),
            alone=alone,
            dead_max=config.dead_max,
            dead_timeout=config.dead_timeout,
            effects=encoded(host.keys, job, "poisoned", _why(dead)),
            batch=batch_of(job),
        )
    )
    if count == -1:
        return [f"{job['class']} {jid} is a poison pill: its process died {len(lines)} times; it is in the dead set"]
    return (
        [f"{job['class']} {jid} is a suspect: its process died {count} times; it runs alone now"] if count > 1 else []
    )
