"""Every key, spelt here and nowhere else, with its type and how long it lives.

Sidekiq's own keys stand as Sidekiq spells them; ours begin with ``hm:``. ``namespace`` goes before all of them.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping

from henchman.store.call import Arg, Call, commands

_HEX = frozenset("0123456789abcdef")


class Keys:
    """The keys of one app. ``prefix`` is ``""`` or ``"<namespace>:"``."""

    def __init__(self, namespace: str = "") -> None:
        self.prefix = p = f"{namespace}:" if namespace else ""
        # Sidekiq's (reference: wire format, section 2)
        self.queues = p + "queues"  # set: every queue name that was pushed to
        self.queue_prefix = p + "queue:"
        self.schedule = p + "schedule"  # zset: payload by due time
        self.retry = p + "retry"  # zset: payload by time of the next attempt
        self.dead = p + "dead"  # zset: payload by time of death; trimmed when added to
        self.processes = p + "processes"  # set: identities
        self.paused = p + "paused"  # set: names of paused queues
        self.process_cleanup = p + "process_cleanup"  # string, 60 s: lock for pruning
        self.stat_processed = p + "stat:processed"  # counter, for ever
        self.stat_failed = p + "stat:failed"  # counter, for ever
        # ours
        self.server = p + "hm:server"  # string: a name for this data, by which a journal knows it again
        self.identities = p + "hm:identities"  # zset: identity by time of joining; removed at stop or rescue
        self.cancelled = p + "hm:cancelled"  # zset: cancelled jids by time; kept 30 days
        self.cancels = p + "hm:cancels"  # counter of cancellations: workers read the log when it moved
        self.cancel_log = p + "hm:cancel_log"  # list, newest first: what each of the last 1,000 steps of it was
        self.staging = p + "hm:staging"  # string, 2 s: identity of the process that stages
        self.clock = p + "hm:clock"  # hash: now, time of the last look; by, at: its last step; left: see rebase.lua;
        #: paused: the paused queues that were announced
        self.pauses = p + "hm:pauses"  # hash: paused queue → since when, by whom, why (JSON); Ruby's pauses have none
        self.objectives = p + "hm:objectives"  # hash: queue → seconds that its next job may wait, as its workers say
        self.isolated = (
            p + "hm:isolated"
        )  # hash, for ever: how many processes of isolated runs were killed, have crashed
        self.lifeline = p + "hm:lifeline"  # string, 3 s: identity of the process that rescues
        self.broken = p + "hm:broken"  # list, last 1,000: effects that failed
        self.deaths = p + "hm:deaths"  # hash: jid → one line a death; entries kept 72 h after the last
        self.charged = p + "hm:charged"  # zset: the same jids by the time of their last death
        self.suspects = p + "hm:suspects"  # set: jids with two deaths or more: each runs alone
        self.notices = p + "hm:notices"  # list, newest 100 for a day: pills that no death handler knows of yet
        self.stopping = p + "hm:stopping"  # zset: identities that were told to stop; removed when they left
        self.rescues = p + "hm:rescues"  # set: identities whose rescue was begun and has not ended
        self.tombs = p + "hm:tombs"  # zset: dead identities by time of death; swept for an hour
        self.crons = p + "hm:crons"  # hash: definition of a cron (JSON) by name, until it is removed
        self.cron_ticks = p + "hm:cron:ticks"  # zset: cron by the last planned time that was dealt with
        self.cron_declared = p + "hm:cron:declared"  # zset: cron from code by the time a worker last declared it
        self.cron_paused = p + "hm:cron:paused"  # set: crons that are paused
        self.cron_pauses = p + "hm:cron:pauses"  # hash: paused cron → since when, by whom, why (JSON)
        self.cron_revision = p + "hm:cron:revision"  # counter of changes to crons: workers read again when it moved
        self.cron_running = p + "hm:cron:running"  # hash: cron → time and jid of its tick's job, until that has ended
        self.cron_skipped = p + "hm:cron:skipped"  # hash: cron → the tick that was passed over last, and for which job
        self.cron_leader = p + "hm:cron:leader"  # string, 2 s: who ticks
        self.paused_kinds = (
            p + "hm:paused"
        )  # hash: class:<name> or tag:<name> that is paused → since when, by whom, why
        self.paused_batches = (
            p + "hm:batches:paused"
        )  # set: batches of which nothing starts; see ``paused`` of ``batch``
        self.batches = p + "hm:batches"  # zset: batch by time of creation; an entry goes when its batch was forgotten
        self.batch_base = p + "hm:batch:"  # see batch()
        self.auditor = p + "hm:auditor"  # string, 2 min: identity of the process that audits batches
        self.history = p + "hm:history"  # stream: changes of tracked jobs and batches, until the recorder has them
        self.history_bytes = p + "hm:history:bytes"  # counter: about how large that stream is
        self.history_on = (
            p + "hm:history:on"
        )  # string: "strict" or "best_effort" and the bytes it may hold; absent: off
        self.history_dropped = p + "hm:history:dropped"  # counter: messages and progress that had no room
        self.recorder = p + "hm:recorder"  # string, 10 s: identity of the process that writes history into SQL
        self.gauges = p + "hm:gauges"  # string, 15 s: identity of the process that tells StatsD how queues stand
        self.outboxes = p + "hm:outboxes"  # hash, 7 days: outbox → how it stood when its relay looked last, JSON
        self.outbox_wake = p + "hm:outbox:wake"  # channel: a transaction with rows of the outbox was committed
        self.ordered_queues = p + "hm:ordered"  # set: every ordered queue that was pushed to or served
        self.leases = p + "hm:lease:"  # how every lease and every tomb begins, for scripts that meet other holders
        self.tombs_of = p + "hm:tomb:"
        self.fair_queues = p + "hm:fair"  # set, for ever: every fair queue that was pushed to or served
        self.scopes = p + "hm:scopes"  # set: scopes of business keys that were ever held
        self.latest = p + "hm:latest"  # hash: jid → payload whose arguments it takes at its start
        self.parked = p + "hm:parked"  # hash: jid → row of a job that waits, see lua/lib/locks.lua
        self.parked_until = p + "hm:parked:until"  # zset: jid by the time until which it waits for what it needs
        self.parked_due = p + "hm:parked:due"  # zset: jid of a parked job by the time before which it does not run
        self.decide = p + "hm:decide"  # list: for the stager, ends without success and cancelled parked jobs
        self.releases = p + "hm:releases"  # list: names of ``ready`` sets, until the stager has emptied them
        self.doubt = p + "hm:doubt"  # zset: lock that keeps others out, "<phase> <scope>\n<key>", by next look
        self.token = p + "hm:token"  # counter: rises with each start of a job with a lock
        self.trimmed = p + "hm:trimmed"  # list: payloads that left the dead set by age, until the stager has ended them
        self.errors = p + "hm:errors"  # zset, 14 days: group of failures by the time of its last one; at most 500
        self.error_facts = p + "hm:errors:facts"  # hash, 14 days: group → counts, last message and jid, JSON; see lua
        self.error_traces = p + "hm:errors:traces"  # hash, 14 days: group → where it was raised, JSON
        self.error_handled = p + "hm:errors:handled"  # hash, 14 days: group → what people decided about it, JSON
        self.findings_muted = p + "hm:findings:muted"  # hash, 8 days: finding → until when, by whom, why (JSON)
        self.views = p + "hm:views"  # hash: page/name → a saved view of a console (JSON)
        self.levels = p + "hm:levels"  # list, 15 min: how long queues were, a JSON a minute, the latest first
        self.ran = p + "hm:ran"  # hash, 15 min: queue → how many jobs have left it by being run or dropped, so far
        self.totals = p + "hm:totals"  # zset: class by the time its totals last grew; 90 days
        self.limits = p + "hm:limits"  # hash: limit → "<kind> <n> <per> <n> <per>", as it is and as code says
        self.slots = p + "hm:slots:"  # see places()
        self.rates = p + "hm:rate:"  # see rate()
        self.behind = p + "hm:behind"  # set of jids: in flight, to have the place of a job of the same process
        self.programs = (
            p + "hm:programs"
        )  # zset: "<lease>\n<limit>\n<by>" of who has a place outside of jobs, by its end
        self.limited = p + "hm:limited:"  # see taken()
        self.cron_seen = p + "hm:cron:seen"  # string: the time until which every tick was dealt with

    def queue(self, name: str) -> str:
        """list: payloads, next to run at the right end."""
        return self.queue_prefix + name

    def process(self, identity: str) -> str:
        """hash, 60 s: the record of a process."""
        return self.prefix + identity

    def work(self, identity: str) -> str:
        """hash, 60 s: running jobs by slot, for readers from 6.4.2 on."""
        return f"{self.prefix}{identity}:work"

    def workers(self, identity: str) -> str:
        """hash, 60 s: the same for readers up to 6.4.1."""
        return f"{self.prefix}{identity}:workers"

    def signals(self, identity: str) -> str:
        """list, 60 s: signals sent to a process through the server."""
        return f"{self.prefix}{identity}-signals"

    def iteration(self, jid: str) -> str:
        """hash, 30 days: where an iterable job stands, and whether it was cancelled."""
        return f"{self.prefix}it-{jid}"

    def task(self, jid: str) -> str:
        """string, a day or as its backend says: how the runs of a task of Django went, JSON."""
        return f"{self.prefix}hm:task:{jid}"

    def checkpoint(self, jid: str) -> str:
        """string, 30 days: how far a job says that it has come, JSON."""
        return f"{self.prefix}hm:checkpoint:{jid}"

    def stat_day(self, which: str, day: str) -> str:
        """counter, five years: ``which`` is ``processed`` or ``failed``, ``day`` is YYYY-MM-DD in UTC."""
        return f"{self.prefix}stat:{which}:{day}"

    def total(self, name: str) -> str:
        """string, 90 days after its last run: 29 counters of 64 bits, what ran of a class so far: all, those that
        raised, ms of the others, and the 26 of its histogram."""
        return f"{self.prefix}hm:total:{name}"

    def minute(self, at: dt.datetime) -> str:
        """hash, 8 hours: what ran in the minute ``at`` (UTC), as Sidekiq 8 has it: ``<class>|p``, ``|f``, ``|ms``."""
        return f"{self.prefix}j|{at:%y%m%d}|{at.hour}:{at:%M}"

    def ten_minutes(self, at: dt.datetime) -> str:
        """hash, 3 days: the same for the ten minutes that ``at`` (UTC) lies in."""
        return self.minute(at)[:-1]

    def histogram(self, name: str, at: dt.datetime) -> str:
        """string, 8 hours: 26 counters of 16 bits, how long runs of ``name`` took in the minute ``at`` (UTC)."""
        return f"{self.prefix}h|{name}-{at.day}-{at.hour}:{at.minute}"

    def minute7(self, at: dt.datetime) -> str:
        """hash, 8 hours: ``minute`` as Sidekiq 7 has it."""
        return f"{self.prefix}j|{at:%Y%m%d}|{at.hour}:{at.minute}"

    def histogram7(self, name: str, at: dt.datetime) -> str:
        """string, 8 hours: ``histogram`` as Sidekiq 7 has it."""
        return f"{self.prefix}{name}-{at:%d-%H}:{at.minute}"

    def marks(self, at: dt.datetime) -> str:
        """hash, 90 days: the label of a deploy by the minute it was made in, of the day ``at`` (UTC)."""
        return f"{self.prefix}{at:%Y%m%d}-marks"

    def day(self, day: str, which: str = "") -> str:
        """hash, 180 days: what ended on ``day`` (UTC), ``<class>|done``, ``|dead``; list: the latest that did."""
        return f"{self.prefix}hm:day:{day.replace('-', '')}{which and ':'}{which}"

    def deploy_lock(self, label: str) -> str:
        """string, 60 s: this deploy has been marked, by whichever of its processes came first."""
        return f"{self.prefix}deploylock-{label}"

    def lease(self, identity: str) -> str:
        """string, the lease: alive as long as it exists."""
        return self.leases + identity

    def tomb(self, identity: str) -> str:
        """string, 62 minutes: this identity was declared dead; nothing that it says counts."""
        return self.tombs_of + identity

    def lists_of(self, identity: str) -> str:
        """set: the in-flight lists of a process; removed at stop or when swept."""
        return f"{self.prefix}hm:flights:{identity}"

    def stacks(self, identity: str) -> str:
        """string, 15 min: where every thread of a process stood when it was asked last."""
        return f"{self.prefix}hm:stacks:{identity}"

    def in_flight(self, identity: str, epoch: int, queue: str) -> str:
        """list: payloads that a process fetched from ``queue`` and has not settled, newest left."""
        return f"{self.prefix}hm:flight:{identity}:{epoch}:{queue}"

    def batch(self, batch: str) -> str:
        """hash: facts and counts of a batch; it and what hangs on it goes ``keep`` seconds after it was complete.

        On it hang ``:jobs`` hash: jid → status of every member that is not settled (children as ``batch:<id>``) ·
        ``:dead`` zset: payloads of jobs that gave up, by time · ``:reasons`` hash: "<status> <reason>" → how many ·
        ``:parked`` list: payloads that wait until an atomic batch is released · ``:lanes`` hash: who pushes → number
        and answer of the last push, should it be sent again · ``:producer`` string: the lease of who fills it ·
        ``:rows`` list: "<number of its job's name> <jid>" of each job in the order of the pushes · ``:results`` hash:
        jid → what the effect ``step_result`` wrote, both where results are kept · ``:steps`` hash: step of a workflow
        → how it ended · ``:names`` hash: step → "<jid> <name of its job>" · ``:after`` hash: step → JSON list of the
        steps that it waits for, where it waits. Facts: description, tags, state (open, closed, complete), why (aborted,
        cancelled, expired, invalidated), paused (JSON: since when, by whom, why), created, closed, completed, open_for,
        expires, parent, atomic, generation, keep, results, total, children, bad_children, bad, first (time of the
        first end), ``n:<status>``, ``cb:<which>:queue|head|jid|tail``, ``called:<which>:<generation>``, ``job_names``
        and ``job:<name>`` (the number of a name).
        """
        return self.batch_base + batch

    def producer(self, batch: str) -> str:
        """string, 30 s: somebody fills this batch."""
        return self.batch_base + batch + ":producer"

    def lock(self, phase: str, scope: str) -> str:
        """hash: key → "<jid> <since> <digest of arguments>", with a ``d`` behind ``since`` when it is dead;
        ``phase`` is ``o`` once, ``u`` until it succeeded, ``w`` until it starts, ``r`` while it runs, ``f`` followed. A
        field lives as long as its job's phase."""
        return f"{self.prefix}hm:lock:{phase}:{scope}"

    def once(self, which: str) -> str:
        """hash, up to 1.5 × ``once_for``: digest of a key → how its job ended, and its jid; ``which`` is
        ``<once_for>:<generation>:<bucket>``."""
        return f"{self.prefix}hm:once:{which}"

    def awaits(self, need: str) -> str:
        """zset: jids that wait for a lock, ``<phase><scope>\\n<key>``, or for a success, ``n<scope>\\n<name>``."""
        return f"{self.prefix}hm:await:{need}"

    def needs(self, jid: str) -> str:
        """set: the lines ``n<scope>\\n<name>`` that a parked job still stands in, where it has several needs."""
        return f"{self.prefix}hm:needs:{jid}"

    def ready(self, which: str) -> str:
        """zset: jids whose need was met when very many waited for it, until the stager has let them go."""
        return f"{self.prefix}hm:ready:{which}"

    def places(self, name: str, by: str) -> str:
        """hash: who has a place of a limit → "<token> <since>", until the job has ended; a jid, or "~" and the lease of
        a program, whose token is below zero while it waits for the next place."""
        return f"{self.slots}{name}:{by}"

    def taken(self, name: str) -> str:
        """set: whose places of a limit are taken, as ``by`` tells them apart."""
        return self.limited + name

    def rate(self, kind: str, name: str, by: str) -> str:
        """string, of a window a list, until nobody waits for its turn: the times that a limit has given away."""
        return f"{self.rates}{kind}:{name}:{by}"

    def throttle(self, digest: str) -> str:
        """string, ``throttle``: the jid that was pushed under a key; ``digest`` is one of scope and key."""
        return f"{self.prefix}hm:throttle:{digest}"

    def debounce(self, scope: str) -> str:
        """hash: key → when a burst of pushes began, the jid, and the payload as it stands in the schedule; until the
        job has ended."""
        return f"{self.prefix}hm:debounce:{scope}"

    def lane(self, which: str) -> str:
        """string, 1 h: number and answers of a client's last push of jobs with a key, should it be sent again."""
        return f"{self.prefix}hm:lane:{which}"

    def result(self, jid: str) -> str:
        """string, ``result_ttl``: what a job returned, or what it raised, as JSON."""
        return f"{self.prefix}hm:result:{jid}"

    def done(self, jid: str) -> str:
        """channel: the result of a job is there."""
        return f"{self.prefix}hm:done:{jid}"

    def outbox_relay(self, outbox: str) -> str:
        """string, 10 s: token of the process that relays this outbox (the name in its table of markers)."""
        return f"{self.prefix}hm:outbox:{outbox}:relay"

    def outbox_sent(self, outbox: str) -> str:
        """set: jids that were pushed and whose rows may still stand in the outbox."""
        return f"{self.prefix}hm:outbox:{outbox}:sent"

    def outbox_duplicates(self, outbox: str) -> str:
        """counter: rows whose key another job had."""
        return f"{self.prefix}hm:outbox:{outbox}:duplicates"

    def ordered(self, queue: str) -> str:
        """The base of an ordered queue's keys; none of them expires. On it hang, spelt in ``lua/lib/ordered.lua``:

        ``due`` zset: id by the next moment somebody may take it · ``one`` hash: id → score and payload that stands
        alone · ``p:<id>`` zset: payload by score, where there were several · ``busy`` hash: id → token, payloads
        delivered, when it was due, holder · ``next`` zset and ``n:<id>`` zset: what arrived while in flight · ``retry``
        zset, ``err`` hash, ``crash`` hash: ids that failed: count, last error, deaths of holders · ``morgue`` zset,
        ``m:<id>`` zset, ``merr`` hash: the dead · ``jp:<id>``, ``jn:<id>``, ``jm:<id>`` hashes, where tracked: payload
        (a long one by its SHA-1) → jid of its record, beside ``p:`` and ``one``, ``n:``, ``m:`` · ``open`` zset: claims
        under a ceiling · ``moving`` hash: id of which a part came from another queue → when it is due ·
        ``g:<group>``, ``k:<group>`` zsets: ids of a group in flight, and put off · ``wake`` zset: the
        marker that wakes a sleeper · ``meta`` hash: last token, limits, how payloads collapse, number of arrivals,
        whether some have records, how far the clock had come and what it went back by · ``stat`` hash: ids processed
        and failed.
        """
        return f"{self.prefix}hm:ordered:{queue}/"

    def fair_facts(self, queue: str) -> str:
        """hash, for ever: of a fair queue, see ``lua/lib/lines.lua``. Its lines are lists, each under the key of a
        queue that is called as ``store.fair.line_name`` says; they go with their last job."""
        return f"{self.prefix}hm:fair:facts:{queue}"

    def fair_turns(self, queue: str, level: str) -> str:
        """zset: tenants of a fair queue that wait on one level, by their next turn; it goes with the last of them."""
        return f"{self.prefix}hm:fair:turns:{level}:{queue}"

    def morgue(self, queue: str) -> str:
        """zset: ids of an ordered queue with buried payloads, by the time of the last burial."""
        return self.ordered(queue) + "morgue"

    def wake(self, queue: str) -> str:
        """zset: one marker when somebody should look into an ordered queue."""
        return self.ordered(queue) + "wake"

    def held(self, identity: str, epoch: int, queue: str) -> str:
        """hash: id → token, what a process holds of an ordered queue."""
        return f"{self.prefix}hm:held:{identity}:{epoch}:{queue}"

    def is_held(self, key: str) -> bool:
        """Whether a registered in-flight key is one of an ordered queue."""
        return key.startswith(self.prefix + "hm:held:")

    def queue_of_flight(self, key: str) -> str:
        """The queue that an in-flight list was filled from. Hosts and queues may hold colons; the nonce cannot."""
        return self._flight_pieces(key)[1]

    def identity_of_flight(self, key: str) -> str:
        """Whose in-flight list, or held hash, this is."""
        return self._flight_pieces(key)[0]

    def _flight_pieces(self, key: str) -> tuple[str, str]:
        pieces = key.removeprefix(self.prefix).split(":")
        for place, piece in enumerate(pieces[:-2]):
            if len(piece) == 12 and set(piece) <= _HEX and pieces[place + 1].isdecimal():
                return ":".join(pieces[2 : place + 1]), ":".join(pieces[place + 2 :])
        return "", pieces[-1]

    def delivered(self, mark: str) -> str:
        """string, one day: what a client had buffered was pushed under this mark."""
        return f"{self.prefix}hm:delivered:{mark}"

    @property
    def audit(self) -> str:
        """list, the last 10,000: what people did in the console, as JSON, newest left."""
        return f"{self.prefix}hm:audit"

    def again(self, jid: str) -> str:
        """hash, 30 days: of a job that ran again with other arguments: ``to`` the new one, ``from`` the old one."""
        return f"{self.prefix}hm:again:{jid}"

    @property
    def operations(self) -> str:
        """zset, the newest 200: number of an operation (bulk work of people) by itself."""
        return f"{self.prefix}hm:operations"

    @property
    def operations_open(self) -> str:
        """set: operations on which somebody works, or should."""
        return f"{self.prefix}hm:operations:open"

    @property
    def operations_last(self) -> str:
        """counter: the number of the last operation."""
        return f"{self.prefix}hm:operations:last"

    @property
    def trashes(self) -> str:
        """hash: key of a trash → its end and its bytes."""
        return f"{self.prefix}hm:operations:trashes"

    def operation(self, number: str) -> str:
        """hash, 30 days: who wants what done to which jobs, its state and its counts."""
        return f"{self.prefix}hm:operation:{number}"

    def doer(self, number: str) -> str:
        """string, 10 s: identity of who carries an operation out."""
        return f"{self.prefix}hm:operation:doer:{number}"

    def trash(self, number: str) -> str:
        """list, 15 minutes: what an operation moved, to put it back: source, where, name, score, old, new."""
        return f"{self.prefix}hm:operation:trash:{number}"

    @property
    def submissions_lost(self) -> str:
        """hash, 30 days after the last: count, latest: jobs whose push failed after the commit that it waited for."""
        return f"{self.prefix}hm:submissions_lost"

    def cron_past(self, name: str) -> str:
        """list, the last 50: what a cron enqueued, ``<planned> <enqueued> <jid>``, newest left; then how that ended and
        when, ``<ending> <at>``, once it has."""
        return f"{self.prefix}hm:cron:past:{name}"

    def control(self, identity: str) -> str:
        """channel: what one process is told."""
        return f"{self.prefix}hm:control:{identity}"

    @property
    def control_all(self) -> str:
        """channel: what every process is told (pause, cancel)."""
        return f"{self.prefix}hm:control"


# What a user of the server must be allowed, by role: the lines of docs/rights.md, and what ``henchman doctor`` tries.
# Nothing here is of the categories @dangerous or @admin: a server hardened with ``-@dangerous`` needs no exception.
# What is done better where more is allowed stands in ``WELCOME``; without it everything works.

_TALK = "discard eval evalsha exec multi ping select subscribe time unsubscribe"
_PUSH = """
    del exists expire get hdel hexists hget hgetall hincrby hkeys hlen hmget hset hsetnx hvals incr incrby llen lpop
    lpush lrange ltrim persist pexpire pttl publish rename rpush sadd scard set sismember smembers srem ttl unlink
    xadd zadd zcard zmscore zpopmin zrange zrank zrem zremrangebyrank zremrangebyscore zscore zunionstore
"""
_MOVE = """
    bitfield decrby hscan lindex lpos lrem lset mget smismember sscan xlen xrange xtrim zcount zrangebyscore
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
    "memory|usage": "doctor cannot say what takes the memory",
    "wait": "wait_replicas cannot be used",
    "role": "of a master that sentinels name it is not asked whether it is one",
}

_ONE_WORD = """
    bzpopmin decrby expire hdel hexists hget hmget hscan incrby lindex lpop lpos lpush pexpire rename rpush sadd set
    sismember smismember srem sscan zmscore zrank zrem zscan zscore
"""
_TWO_WORDS = """
    hincrby hset hsetnx lrange lrem ltrim xrange xtrim zadd zcount zrange zrangebyscore zremrangebyrank zremrangebyscore
    zrevrange lset
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


def acl_line(role: str, user: str, keys: Keys) -> str:
    """What to type into the server so that ``user`` may be a ``role``, and nothing else."""
    every = f"{keys.prefix}*"
    allowed = " ".join(f"+{one}" for one in ROLES[role])
    return f"ACL SETUSER {user} on >PASSWORD resetkeys ~{every} resetchannels &{every} -@all {allowed}"


def acl_trial(keys: Keys, name: str) -> Call[object]:
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
