"""What a dead process held goes back to its queues, after its jobs were charged with the death.

One ``rescue`` for both: a child, whose supervisor saw it end (``supervisor/child_leases.py``), and a lost host, whose
lease ran out (``lifeline.py``). The caller declares the identity dead first: from then on nothing that it says counts.
Each list is rescued by itself: one that is broken stays for the next try and stops no other. Each step may be repeated.

Two deaths make a job a suspect, a third one, alone, a poison pill. Only started jobs are charged; of a lost host nobody
knows which had started, so all that it held are. A process that was told to stop charges no job: a deploy is its end.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from henchman.config import Config
from henchman.errors import PayloadError, ServerAway, ServerError
from henchman.kernel.clock import ServerClock
from henchman.kernel.text import described, visible
from henchman.store import batches, jobs, leases, ordered
from henchman.store.call import Arg, Runner, command, commands
from henchman.store.keys import Keys
from henchman.wire import payload, times
from henchman.work.effects import EndingFacts, batch_of, encoded, of_payload

AT_ONCE = 500  # questions, effects or payloads in one call
_MARK = 40  # bytes of a jid that a scoreboard keeps

T = TypeVar("T")
Key = TypeVar("Key")


class Settler(Protocol):
    """What giving work back needs: a worker has it, and so does a supervisor, which has no app."""

    @property
    def config(self) -> Config: ...
    @property
    def keys(self) -> Keys: ...
    @property
    def clock(self) -> ServerClock: ...
    @property
    def connections(self) -> Runner: ...


class Death(NamedTuple):
    """How a process ended. ``started``: the jids that it ran, None: nobody knows, so all that it held are charged.

    ``alone``: whether what ran had the process to itself; None: it did if nothing else was held. ``marked``: the ends
    of the payloads that were read or settled just then.
    """

    cause: str
    started: Collection[bytes] | None = None
    alone: bool | None = None
    marked: Collection[bytes] = ()


class Rescued(NamedTuple):
    """How many payloads and ids went back, and why some could not: the first error, None when all did."""

    moved: int
    error: Exception | None


def rescue(
    host: Settler, identity: str, death: Death | None, say: Callable[[str], object] = lambda line: None
) -> Rescued:
    """Charge and give back what the entombed ``identity`` held, and take it off the books when nothing is left.

    ``say`` gets one line for each job that is a suspect or a poison pill by now. Without a ``death`` no job is charged.
    """
    runner, keys = host.connections, host.keys
    lists = runner.run(leases.in_flight_lists(keys, identity))
    filled = there(host, lists)
    held, unread = apart(lambda flight: held_in(host, flight), [one for one in lists if one in filled])
    if death is not None and death.alone is None:
        alone = not unread and sum(len(one.payloads) + len(one.claims) for one in held.values()) == 1
        death = death._replace(alone=alone)

    def give_back(flight: str) -> int:
        for line in charge(host, identity, held[flight], death) if death is not None else ():
            say(line)
        given_back = give_back_list(host, flight, keys.queue_of_flight(flight))
        return sum(len(one.ids) for one in held[flight].claims) or given_back  # ids were freed with their charge

    def ring(queues: tuple[str, ...]) -> None:
        list(each(host, [ordered.ring(keys, queue).parts[0] for queue in queues]))

    counts, stuck = apart(give_back, held)
    # An ordered queue of which nothing was held is rung all the same: its wake may be lost with its taker.
    empty = tuple(keys.queue_of_flight(one) for one in lists if keys.is_held(one) and one not in filled)
    _, unrung = apart(ring, [empty])
    error = next(iter((*unread.values(), *stuck.values(), *unrung.values())), None)
    if error is None:
        runner.run(command("SREM", keys.rescues, identity))
        runner.run(leases.strike_off(keys, identity))
    return Rescued(sum(counts.values()), error)


def apart(step: Callable[[Key], T], items: Iterable[Key]) -> tuple[dict[Key, T], dict[Key, Exception]]:
    """``step`` of each item, by item, and what it raised: one that fails stops no other. ServerAway stops all."""
    done: dict[Key, T] = {}
    failed: dict[Key, Exception] = {}
    for one in items:
        try:
            done[one] = step(one)
        except ServerAway:
            raise
        except Exception as error:  # whatever it is: a payload that cannot be judged, for one
            failed[one] = error
    return done, failed


def each(host: Settler, questions: Sequence[tuple[Arg, ...]]) -> Iterator[Any]:
    """The answer to each, asked many at a time: an hour's dead may have had thousands of lists, and a look at each of
    them alone would take longer than contact may be broken."""
    for start in range(0, len(questions), AT_ONCE):
        yield from host.connections.run(commands(*questions[start : start + AT_ONCE]))


def there(host: Settler, names: Sequence[str]) -> set[str]:
    """The keys that exist: the lists that hold something, the tombs that stand."""
    found = each(host, [("EXISTS", one) for one in names])
    return {one for one, exists in zip(names, found, strict=True) if exists}


def give_back_list(
    host: Settler, flight: str, queue: str, ending: str = "rescued", reason: str = "its process ended"
) -> int:
    """Empty one in-flight list into its queue, or free what one process held of an ordered one, in chunks; how many
    payloads or ids that were. Only for a process that has ended, or for lists that no process works on.

    ``ending`` and ``reason`` are what the batch and the history of tracked jobs learn: these jobs wait again.
    """
    runner, keys = host.connections, host.keys
    identity = keys.identity_of_flight(flight)
    if keys.is_held(flight):
        noted = list(runner.run(ordered.held(flight)).items())
        return ordered.free_all(runner, keys, identity, flight, queue, noted)
    payloads: list[bytes] = runner.run(command("LRANGE", flight, 0, -1))
    told = EndingFacts(identity, detail={"reason": reason})
    effects = [text for one in payloads if (text := of_payload(keys, one, ending, told))]
    for start in range(0, len(effects), AT_ONCE):
        runner.run(batches.note(keys, effects[start : start + AT_ONCE]))
    moved = 0
    while chunk := runner.run(jobs.give_back(keys, flight, queue, AT_ONCE)):
        moved += chunk
    return moved


class LeftClaim(NamedTuple):
    """Ids of an ordered queue that one job held together."""

    jid: str
    token: bytes
    ids: list[bytes]


class Leftover(NamedTuple):
    """What one in-flight list holds: payloads, or the claims of an ordered queue."""

    flight: str
    payloads: list[bytes]
    claims: list[LeftClaim]


def held_in(host: Settler, flight: str) -> Leftover:
    """What the in-flight list ``flight`` holds."""
    if not host.keys.is_held(flight):
        return Leftover(flight, host.connections.run(command("LRANGE", flight, 0, -1)), [])
    queue = host.keys.queue_of_flight(flight)
    by_token: dict[bytes, list[bytes]] = {}
    for one, token in host.connections.run(ordered.held(flight)).items():
        by_token.setdefault(token, []).append(one)
    return Leftover(flight, [], [LeftClaim(ordered.claim_jid(queue, int(one)), one, by_token[one]) for one in by_token])


def charge(host: Settler, identity: str, held: Leftover, death: Death) -> list[str]:
    """Charge the jobs of one list with a death: those that had started, and those whose payloads were read or settled
    just then. One line for each that is a suspect or a poison pill by now."""
    said: list[str] = []
    for claim in held.claims:
        if death.started is None or claim.jid.encode()[:_MARK] in death.started:
            said.append(_charge_claim(host, identity, held.flight, claim, bool(death.alone)))
    for stored in held.payloads:
        line = f"{times.iso(host.clock.now())} {identity} {death.cause}"
        try:
            if job := _charged(stored, death):
                said += _charge_job(host, held.flight, stored, job, line, bool(death.alone))
        except ServerError:
            raise
        except Exception as error:  # one that cannot be charged goes back like the others
            said.append(f"a job could not be charged with the death of its process: {described(error)}")
    return said


def _charged(stored: bytes, death: Death) -> dict[str, object] | None:
    """The job of a payload if it is to be charged. An unreadable one never starts: its end is decided at its fetch."""
    named = any(map(stored.endswith, death.marked))
    try:
        job = payload.decode(stored)
    except PayloadError:
        return None
    jid = str(job.get("jid") or (payload.name_of(stored) if named else ""))
    known = death.started is None or named or jid.encode("utf-8", "replace")[:_MARK] in death.started
    return job | {"jid": jid} if jid and known else None


def _charge_claim(host: Settler, identity: str, held_key: str, claim: LeftClaim, alone: bool) -> str:
    """Free the ids of one claim with a death each; a third one, alone, counts as a failure when it is claimed next."""
    queue, pairs = host.keys.queue_of_flight(held_key), [(one, claim.token) for one in claim.ids]
    ordered.free_all(host.connections, host.keys, identity, held_key, queue, pairs, charge=True, alone=alone)
    names = ", ".join(visible(one.decode("utf-8", "replace")) for one in claim.ids[:5])
    return f"its process died while it ran ids {names} of the ordered queue {queue}"


def _charge_job(host: Settler, flight: str, stored: bytes, job: dict[str, object], line: str, alone: bool) -> list[str]:
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
    why = EndingFacts(detail={"error_class": dead["error_class"], "message": dead["error_message"]})
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
            effects=encoded(host.keys, job, "poisoned", why),
            batch=batch_of(job),
        )
    )
    if count == -1:
        return [f"{job['class']} {jid} is a poison pill: its process died {len(lines)} times; it is in the dead set"]
    return (
        [f"{job['class']} {jid} is a suspect: its process died {count} times; it runs alone now"] if count > 1 else []
    )
