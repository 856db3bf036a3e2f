"""What a worker process costs the server while there is nothing to do."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from henchman.store.call import load
from support.processes import Work
from support.worker import looker, until

SECONDS = 20
WAITING = frozenset({"BLMOVE", "BZPOPMIN", "fetch", "due", "cron_look"})  # what comes besides the heartbeat
LUA = Path(__file__).resolve().parents[2] / "src" / "henchman" / "store" / "lua"


def test_an_idle_worker_sends_two_commands_a_second_and_three_for_its_heartbeat(tmp_path: Path, redis_url: str) -> None:
    """PROTOCOL, section 6.5, with default settings; commands inside scripts are not sent. Its
    supervisor renews the lease as often as it does: every second renewal is not its own."""
    names = {load(file.stem).sha: file.stem for file in LUA.glob("*.lua")}
    queues = [word for name in "abcd" for word in ("-q", name)]
    sent: Counter[str] = Counter()
    with looker(redis_url) as redis, Work(tmp_path / "work", redis_url, *queues) as work:
        work.ready(redis)
        until(lambda: redis.info("clients")["blocked_clients"] == 4, "it waits for pushes")
        time.sleep(3)  # what is done once, after the start, is over
        with redis.monitor() as monitor:
            monitor.connection._sock.settimeout(30)  # type: ignore[union-attr]
            end = time.monotonic() + SECONDS
            for command in monitor.listen():
                if time.monotonic() > end:
                    break
                if command["client_type"] != "lua":
                    name, *more = command["command"].split()
                    sent[names.get(more[0], name) if name.startswith("EVAL") else name] += 1
    waiting = sum(count for name, count in sent.items() if name in WAITING)
    assert waiting <= 2 * SECONDS + 4, (waiting, sent)
    assert sent.total() - waiting - sent["renew"] // 2 <= 3 * SECONDS, sent
