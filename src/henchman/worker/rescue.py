"""Who is dead, and what becomes of what it held: its jobs are charged with the death and go back to their queues.

One ``rescue`` for both: a child, whose supervisor saw it end (``supervisor/child_leases.py``), and a lost host, whose
lease ran out (``Lifeline``, one process at a time). The caller declares the identity dead first, by a tombstone: from
then on nothing that it says counts. Each list is rescued by itself: one that is broken stays for the next try and stops
no other. Each step may be repeated.

Two deaths make a job a suspect, a third one, alone, a poison pill. Only started jobs are charged; of a lost host nobody
knows which had started, so all that it held are. A process that was told to stop charges no job: a deploy is its end.

A lease that ran out is believed only after it was seen for 15 s, in unbroken contact with the same run of the server,
not to be renewed: an outage longer than the lease makes nobody steal living work. Lists of the dead are swept for an
hour, because bytes of the dead may still arrive (PROTOCOL, sections 1.5 and 2).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from henchman.client.runtime import Runtime, Settler
from henchman.errors import PayloadError, ServerAway, ServerError
from henchman.kernel.clock import awake
from henchman.kernel.text import described, shorten, visible
from henchman.kernel.threads import Ticker
from henchman.store import batches, jobs, leases, ordered
from henchman.store.call import Arg, Runner, command, commands
from henchman.store.leases import LIFELINE_MS, Leader
from henchman.store.queues import list_page
from henchman.wire import payload, times
from henchman.work.effects import EndingFacts, batch_of, encoded, of_payload
from henchman.worker.lost_programs import LostPrograms
from henchman.worker.lost_runs import Count, LostRuns, uncounted

SHOWN = 20  # jobs named in one line
AT_ONCE = 500  # questions, effects or payloads in one call
WATCH = 15.0  # seconds without a renewal after which a lease that ran out is believed
LOOK = 1.0  # seconds between two looks
SWEEP = 5.0  # seconds between two looks at the lists of the dead
GAP = 6.0  # longer without a look than this is not unbroken contact
JITTER = 100  # milliseconds by which the end of a lease may seem to move though nobody renewed it
_MARK = 40  # bytes of a jid that a scoreboard keeps

T = TypeVar("T")
Key = TypeVar("Key")


class Death(NamedTuple):
    """How a process ended. ``started``: the jids that it ran, None: nobody knows, so all that it held are charged.

    ``alone``: whether what ran had the process to itself; None: it did if nothing else was held. ``marked``: the ends
    of the payloads that were read or settled just then. ``kind``: "crash" or "hang".
    """

    cause: str
    started: Collection[bytes] | None = None
    alone: bool | None = None
    marked: Collection[bytes] = ()
    kind: str = "crash"


class Rescued(NamedTuple):
    """How many payloads and ids went back, and why some could not: the first error, None when all did. ``jobs``: class
    and id of those that went back, as many as a line of the log bears; none of ordered queues."""

    moved: int
    error: Exception | None
    jobs: Sequence[str] = ()


class Charge(NamedTuple):
    """A line of the log about a job that was charged with a death: constant words, and the facts."""

    words: str
    facts: dict[str, Any]


def rescue(
    host: Settler,
    identity: str,
    death: Death | None,
    say: Callable[..., object] = lambda words, **facts: None,
    lost: LostRuns | None = None,
) -> Rescued:
    """Charge and give back what the entombed ``identity`` held, and take it off the books when nothing is left.

    ``say(words, **facts)`` tells of each job that is a suspect or a poison pill by now. Without a ``death`` no job is
    charged. ``lost``: what it ran; those whose time was over end before the rest goes back.
    """
    runner, keys = host.connections, host.keys
    lists = runner.run(leases.in_flight_lists(keys, identity))
    filled = there(host, lists)
    held, unread = apart(lambda flight: held_in(host, flight), [one for one in lists if one in filled])
    if death is not None and death.alone is None:
        alone = not unread and sum(one.size for one in held.values()) == 1
        death = death._replace(alone=alone)
    names, cause = list[str](), "stop" if death is None else death.kind

    def give_back(flight: str) -> int:
        for words, facts in charge(host, identity, held[flight], death) if death is not None else ():
            say(words, **facts)
        if lost is not None:
            lost.time_out(flight)
        given_back = give_back_list(host, flight, keys.queue_of_flight(flight), names=names, cause=cause, lost=lost)
        return sum(len(one.ids) for one in held[flight].claims) or given_back  # ids were freed with their charge

    counts, stuck = apart(give_back, held)
    # An ordered queue of which nothing was held is rung all the same: its wake may be lost with its taker.
    empty = [keys.queue_of_flight(one) for one in lists if keys.is_held(one) and one not in filled]
    _, unrung = apart(lambda rings: list(each(host, rings)), [tuple(ordered.ring(keys, one).parts[0] for one in empty)])
    error = next(iter((*unread.values(), *stuck.values(), *unrung.values())), None)
    if error is None:
        runner.run(command("SREM", keys.rescues, identity))
        runner.run(leases.strike_off(keys, identity))
    return Rescued(sum(counts.values()), error, names)


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
    host: Settler,
    flight: str,
    queue: str,
    ending: str = "rescued",
    reason: str = "its process ended",
    names: list[str] | None = None,
    cause: str = "crash",
    lost: LostRuns | None = None,
) -> int:
    """Empty one in-flight list into its queue, or free what one process held of an ordered one, in chunks; how many
    payloads or ids that were. Only for a process that has ended, or for lists that no process works on.

    ``ending``, ``reason`` and ``cause`` are what the batch and the history of tracked jobs learn: they wait again.
    ``lost`` knows where each ran. ``names`` gets class and id of what goes back, until a line of the log would bear no
    more.
    """
    runner, keys = host.connections, host.keys
    identity = keys.identity_of_flight(flight)
    if keys.is_held(flight):
        noted = list(runner.run(ordered.held(flight)).items())
        return ordered.free_all(runner, keys, identity, flight, queue, noted)
    told, moved = EndingFacts(identity, detail={"reason": reason, "cause": cause}), 0
    while left := (page := runner.run(list_page(flight, 0, AT_ONCE))).looked:
        facts = [(one, told if lost is None else _with(told, lost.facts_of(one))) for one in page.payloads]
        effects = [text for one, known in facts if (text := of_payload(keys, one, ending, known))]
        if effects:
            runner.run(batches.note(keys, effects))
        if names is not None:
            names += map(_named, page.payloads[: SHOWN - len(names)])
        while left and (chunk := runner.run(jobs.give_back(keys, flight, queue, left))):
            left, moved = left - chunk, moved + chunk
    return moved


def _with(told: EndingFacts, more: Mapping[str, Any]) -> EndingFacts:
    return told._replace(detail={**told.detail, **more}) if more else told


def _named(stored: bytes) -> str:
    """Class and id of a job, for a line of the log."""
    try:
        job = payload.decode(stored)
        return visible(shorten(f"{job['class']} {job.get('jid')}", 100))
    except PayloadError:
        return "(not readable)"


class LeftClaim(NamedTuple):
    """Ids of an ordered queue that one job held together."""

    jid: str
    token: bytes
    ids: list[bytes]


class Leftover(NamedTuple):
    """What one in-flight list holds: how many payloads, or claims of an ordered queue, and those claims."""

    flight: str
    size: int
    claims: list[LeftClaim]


def held_in(host: Settler, flight: str) -> Leftover:
    """What the in-flight list ``flight`` holds."""
    if not host.keys.is_held(flight):
        return Leftover(flight, host.connections.run(command("LLEN", flight)), [])
    queue = host.keys.queue_of_flight(flight)
    by_token: dict[bytes, list[bytes]] = {}
    for one, token in host.connections.run(ordered.held(flight)).items():
        by_token.setdefault(token, []).append(one)
    claims = [LeftClaim(ordered.claim_jid(queue, int(one)), one, by_token[one]) for one in by_token]
    return Leftover(flight, len(claims), claims)


def charge(host: Settler, identity: str, held: Leftover, death: Death) -> list[Charge]:
    """Charge the jobs of one list with a death: those that had started, and those whose payloads were read or settled
    just then. One line for each that is a suspect or a poison pill by now."""
    said: list[Charge] = []
    for claim in held.claims:
        if death.started is None or claim.jid.encode()[:_MARK] in death.started:
            said.append(_charge_claim(host, identity, held.flight, claim, bool(death.alone)))
    place, size = 0, 0 if held.claims else held.size
    while place < size and (page := host.connections.run(list_page(held.flight, place, AT_ONCE))).looked:
        place, size = place + page.looked, page.size
        for stored in page.payloads:
            line = f"{times.iso(host.clock.now())} {identity} {death.cause}"
            try:
                if job := _charged(stored, death):
                    told, is_gone = _charge_job(host, held.flight, stored, job, line, bool(death.alone))
                    said += told
                    place -= is_gone  # what stood behind it has moved up
            except ServerError:
                raise
            except Exception as error:  # one that cannot be charged goes back like the others
                words = "a job could not be charged with the death of its process"
                said.append(Charge(words, {"error": described(error)}))
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


def _charge_claim(host: Settler, identity: str, held_key: str, claim: LeftClaim, alone: bool) -> Charge:
    """Free the ids of one claim with a death each; a third one, alone, counts as a failure when it is claimed next."""
    queue, pairs = host.keys.queue_of_flight(held_key), [(one, claim.token) for one in claim.ids]
    ordered.free_all(host.connections, host.keys, identity, held_key, queue, pairs, charge=True, alone=alone)
    names = ", ".join(visible(one.decode("utf-8", "replace")) for one in claim.ids[:5])
    return Charge("a process died while it ran ids of an ordered queue", {"queue": queue, "ids": names})


def _charge_job(
    host: Settler, flight: str, stored: bytes, job: dict[str, object], line: str, alone: bool
) -> tuple[list[Charge], bool]:
    """What is to be said of it, and whether it is in the dead set now."""
    config, jid = host.config, str(job["jid"])
    lines = [*host.connections.run(jobs.deaths(host.keys, jid)), line]
    now = float(times.write(host.clock.now(), "seconds"))
    dead = job | {
        "queue": job.get("queue") or host.keys.queue_of_flight(flight),
        "error_class": "PoisonPill",
        "error_cause": "poison",
        "error_message": f"its process died {len(lines)} times while it ran: {'; '.join(lines)}"[:10_000],
        "failed_at": job.get("failed_at") or now,
        "retry_count": job.get("retry_count", 0),
    }
    if dead["retry_count"]:
        dead.setdefault("retried_at", now)
    why = EndingFacts(detail={"cause": "poison", "error_class": "PoisonPill", "message": dead["error_message"]})
    count = host.connections.run(
        jobs.charge(
            host.keys,
            flight,
            jid,
            line.encode("utf-8", "replace"),
            stored,
            (text := payload.encode(dead)),
            alone=alone,
            dead_max=config.dead_max,
            dead_timeout=config.dead_timeout,
            effects=encoded(host.keys, job, "poisoned", why),
            batch=batch_of(job),
            notice=payload.notice_of(dead, text),
        )
    )
    facts = {"jid": jid, "class": job["class"], "queue": dead["queue"], "cause": line}
    if count == -1:
        return [Charge("a job is a poison pill: it is in the dead set", facts | {"deaths": len(lines)})], True
    said = [Charge("a job is a suspect: it runs alone now", facts | {"deaths": count})]
    return (said if count > 1 else []), False


# --- the dead of other hosts ------------------------------------------------------------------------------------------


def entomb(runtime: Runtime, identity: str) -> bool:
    """Declare ``identity`` dead and note that its rescue has begun; False when it lives after all."""
    runner, keys = runtime.connections, runtime.keys
    try:
        runner.run(command("SADD", keys.rescues, identity))  # any lifeline that finds it there, and a tomb, goes on
    except ServerAway:
        raise
    except ServerError as error:  # a full server: a rescue that is not broken off needs no note
        runtime.events.emit("part_failed", part="lifeline", error=error)
    if not runner.run(leases.entomb(keys, identity, force=False)):
        runner.run(command("SREM", keys.rescues, identity))
        return False
    return True


def rescue_lost(runtime: Runtime, identity: str, count: Count = uncounted) -> Rescued:
    """Charge and give back what the entombed ``identity`` held, unless it was stopping: then no job is to blame.
    ``count`` hears of runs whose time was over."""
    stopping = runtime.connections.run(command("ZSCORE", runtime.keys.stopping, identity)) is not None
    death = None if stopping else Death("its host is gone")
    lost = LostRuns(runtime, identity, count)
    say = partial(runtime.events.emit, "charged")
    return rescue(runtime, identity, death, lambda text, **facts: say(text=text, **facts), lost)


class _Seen(NamedTuple):
    """When a lease runs out (0: it has), and since when it has not been seen to be renewed."""

    expires: int
    since: float


class Lifeline(Ticker):
    """Looks each second, whatever the heart does."""

    name = "lifeline"

    def __init__(self, runtime: Runtime, count: Count = uncounted) -> None:
        super().__init__(runtime.events.failed)
        self._runtime = runtime
        self._count = count
        self.leader = Leader(runtime.keys.lifeline, LIFELINE_MS)
        self._seen: dict[str, _Seen] = {}
        self._programs = LostPrograms(runtime)
        self._own = runtime.connections.apart()
        self._opened, self._run = 0, b""
        self._last = self._swept = float("-inf")

    def tick(self) -> float:
        """Look for the dead, now and then also for what reached them late; the seconds until the next look."""
        sweep = awake() - self._swept >= SWEEP
        try:
            return self.look(sweep=sweep)
        except ServerAway:
            return LOOK  # the heart says so, once

    def look(self, *, sweep: bool = True) -> float:
        """Look for the dead; rescue those that are certain, sweep what was rescued before. The seconds until our next
        look: at once after the turn of another process has run out."""
        started = awake()
        seen = self._watch(self._own if self.leader.leads else self._runtime.connections)
        if not seen.turn:
            self._rest()
            return min(max(seen.left, 0.0), self.leader.lease_ms / 1000) + 0.05
        if not self.leader.leads:
            self.leader.leads = True
            seen = self._watch(self._own)
        self._stay_in_contact(started)
        failed = self._entomb_and_rescue(seen, started)
        if sweep:
            self._swept = started
            if seen.buried:  # who is buried just now had everything moved
                self._sweep(failed)
        if seen.programs:
            self._programs.free(started, lambda: self._server_run() == self._run)
        took = awake() - started
        self.leader.lease_ms = max(LIFELINE_MS, int(4000 * took))  # a look that takes long keeps its turn
        return max(0.0, LOOK - took)

    def stop(self, timeout: float = 5.0) -> bool:
        """Look no more, and let another process look without waiting for our turn to run out."""
        ended = super().stop(timeout)
        if ended:
            self._rest()
        self.leader.resign(self._runtime.connections, self._runtime.events, self.name)
        return ended

    def _forget(self) -> None:
        self._seen.clear()
        self._programs.forget()

    def _rest(self) -> None:
        self._forget()
        if self.leader.leads:
            self.leader.leads = False
            self._own.close()

    def _watch(self, runner: Runner) -> leases.Watch:
        """Every lease, if it is our turn."""
        keys, leader = self._runtime.keys, self.leader
        seen = page = runner.run(leases.watch(keys, leader.identity, leader.lease_ms))
        first = 0  # names come, go and change places meanwhile: how many were seen does not tell where to go on
        while page.turn and len(page.expires) == leases.AT_ONCE:
            first += leases.AT_ONCE
            page = runner.run(leases.watch(keys, leader.identity, leader.lease_ms, first))
            seen.expires.update(page.expires)
        return seen

    def _stay_in_contact(self, now: float) -> None:
        """What was seen counts only as long as contact with one run of the server is unbroken.

        The connection is our own, and the same: then so is the server. On another one the server is asked who it is.
        """
        own = self._own
        if own.opened != self._opened or now - self._last > GAP:
            run = self._server_run()
            if run != self._run or now - self._last > GAP:
                self._forget()
            self._run, self._opened = run, own.opened
        self._last = now

    def _server_run(self) -> bytes:
        """Something that is another one when the server is, or was started anew."""
        own = self._own
        try:
            info: bytes = own.run(command("INFO", "server"))
            found = next((line for line in info.splitlines() if line.startswith(b"run_id:")), b"")
            if found:
                return found
        except ServerAway:
            raise
        except ServerError:  # forbidden, as hardened servers do: then a connection stands for its server
            pass
        try:
            client: int = own.run(command("CLIENT", "ID"))
            return b"connection %d, client %d" % (own.opened, client)  # a server counts from 1 again when it starts
        except ServerAway:
            raise
        except ServerError:
            return b"connection %d" % own.opened

    def _entomb_and_rescue(self, seen: leases.Watch, now: float) -> set[str]:
        """Entomb who is certainly dead, then rescue; the names of those whose rescue failed.

        All are entombed before the first is rescued, the longest dead first: what is begun is noted on the server, so
        any lifeline goes on with it at its next look, without a second watching, when the server is lost in between.
        """
        runtime, keys = self._runtime, self._runtime.keys
        begun = self._begun(seen)
        ripe = self._ripe(seen.expires, now)
        entombed = there(runtime, [keys.tomb(name) for name in ripe])
        ripe = [name for name in ripe if keys.tomb(name) not in entombed]
        if ripe and self._server_run() != self._run:
            self._forget()  # something between us and the server leads to another one without a word
            ripe = []
        dead, alive = apart(partial(entomb, runtime), ripe)
        rescued, failed = apart(self._rescue_one, [*begun, *(name for name in dead if dead[name])])
        failed |= {name: one.error for name, one in rescued.items() if one.error is not None}
        self._announce_failures(alive | failed)
        return set(failed)

    def _rescue_one(self, name: str) -> Rescued:
        rescued = rescue_lost(self._runtime, name, self._count)
        if rescued.moved or rescued.error is None:
            self._runtime.events.emit("rescued", identity=name, count=rescued.moved)
        return rescued

    def _announce_failures(self, failed: Mapping[str, Exception]) -> None:
        for error in failed.values():
            self._runtime.events.emit("part_failed", part=self.name, error=error)

    def _ripe(self, expires: Mapping[str, int], now: float) -> list[str]:
        """Whose lease has run out, and was not seen to be renewed for so long that it is certain; the longest first."""
        seen = {}
        for name, until in expires.items():
            known = self._seen.get(name)
            renewed = known is None or (until and abs(until - known.expires) > JITTER)
            seen[name] = _Seen(until, now) if known is None or renewed else _Seen(until or known.expires, known.since)
        self._seen = seen
        dead = [name for name, until in expires.items() if not until and now - seen[name].since >= WATCH]
        return sorted(dead, key=lambda name: seen[name].since)

    def _begun(self, seen: leases.Watch) -> list[str]:
        """Rescues that were broken off: by an outage, or by the end of the process that carried them out."""
        if not seen.begun:
            return []
        runner, keys = self._runtime.connections, self._runtime.keys
        tombs = there(self._runtime, [keys.tomb(name) for name in seen.begun])
        for name in seen.begun:
            if keys.tomb(name) not in tombs and seen.expires.get(name, -1):
                runner.run(command("SREM", keys.rescues, name))  # it was not entombed, and lives or has left
        return [name for name in seen.begun if keys.tomb(name) in tombs]

    def _sweep(self, failed: set[str]) -> None:
        """Send back what reached the lists of the dead late; after an hour they are forgotten. Not of ``failed``, whose
        deaths are not charged yet."""
        runner, keys = self._runtime.connections, self._runtime.keys
        tombs: list[Any] = runner.run(command("ZRANGE", keys.tombs, 0, -1, "WITHSCORES"))
        names = [one.decode() for one in tombs[::2]]
        since = dict(zip(names, map(float, tombs[1::2]), strict=True))
        found = each(self._runtime, [("SMEMBERS", keys.lists_of(name)) for name in names])
        lists = {name: [one.decode() for one in some] for name, some in zip(names, found, strict=True)}
        filled = there(self._runtime, [one for some in lists.values() for one in some])

        def sweep(name: str) -> None:
            self._sweep_one(name, since[name], lists[name], [one for one in lists[name] if one in filled])

        self._announce_failures(apart(sweep, [name for name in names if name not in failed])[1])

    def _sweep_one(self, name: str, buried: float, lists: list[str], filled: list[str]) -> None:
        runner, keys = self._runtime.connections, self._runtime.keys
        swept, failed = apart(lambda one: give_back_list(self._runtime, one, keys.queue_of_flight(one)), filled)
        late, old = sum(swept.values()), self._runtime.clock.now() - buried > leases.TOMB_MS / 1000
        if late:
            runner.run(leases.entomb(keys, name, force=True))  # the hour begins anew
            self._runtime.events.emit("rescued", identity=name, count=late)
        elif old and not failed and runner.run(leases.leave(keys, name, lists)):  # else something came just now
            runner.run(command("ZREM", keys.tombs, name))
        self._announce_failures(failed)
