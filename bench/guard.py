"""Whether the hot paths became slower: ratios beside the bare loops, held against those of guard.toml. Two minutes; CI.

A ratio is processor time of the bare side over processor time of Henchman's, worker and server together: other work on
the machine changes it little, as it does the median of several turns in which all sides run one after another. A ratio
that is a quarter below the stored one is measured once more with as many turns; if all turns together say so, too, the
guard fails. ``--renew`` stores what was measured: do so when the change is meant, and say why in the commit.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median

from henchman.bench.bare import drain_bare, fill
from henchman.bench.jobs import LOAD, app, changes, noop, once, roomy, tell, tight
from henchman.bench.measures import Ground, ping, push_costs, waits
from henchman.bench.report import Report
from henchman.bench.server import server
from henchman.bench.stamps import Stamps
from henchman.bench.worker import drain, worker

STORED = Path(__file__).with_name("guard.toml")
FALL = 0.25
JOBS, PUSHES, SAMPLES = 60_000, 20_000, 60
#: ratio → what it says
RATIOS = {
    "drain": "a plain job, beside the loop that settles runs",
    "ordered": "an ordered id, beside the loop that settles rows",
    "keyed": "a job with once=True, beside the loop that settles rows",
    "tracked": "a member of a batch, beside the loop that settles rows",
    "limited": "a job under a limit that has room, beside the loop that settles rows",
    "full": "a job under a limit of ten that is full, beside the loop that settles rows",
    "push": "enqueue, beside a bare socket",
    "bulk": "a row of enqueue_many, beside a push by a bare socket",
    "start": "push to start on an idle worker, beside a bare ping-pong (medians of time)",
}


def spent(ground: Ground, work: Callable[[], object]) -> float:
    """Seconds of processor time of this process and of the server."""
    before = time.process_time() + ground.raw.cpu()
    work()
    return time.process_time() + ground.raw.cpu() - before


def drained(ground: Ground, queue: str, count: int) -> float:
    """Seconds of processor time of a worker, and of the server, for the jobs of a queue."""
    found = drain(ground.server, ground.raw, queue, count)
    return (found.worker_us + found.server_us) * count / 1e6


def one_turn(ground: Ground) -> dict[str, float]:
    """Every ratio once."""
    made, raw, count = ground.server, ground.raw, ground.count(JOBS)
    fill(made, raw, count)
    rows = spent(ground, lambda: drain_bare(made, raw, count, "rows"))
    fill(made, raw, count)
    runs = spent(ground, lambda: drain_bare(made, raw, count, "runs"))
    fill(made, raw, count)
    ratios = {"drain": runs / drained(ground, LOAD, count)}
    made.clear(raw)
    changes.push_many((f"entity-{number:06d}", number, number) for number in range(count))
    ratios["ordered"] = rows / drained(ground, "bench_ordered", count)
    made.clear(raw)
    for name, job in {"keyed": once, "limited": roomy, "full": tight}.items():
        job.enqueue_many((number,) for number in range(count))
        ratios[name] = rows / drained(ground, LOAD, count)
        made.clear(raw)
    with app.batch("guard"):
        noop.enqueue_many((number,) for number in range(count))
    ratios["tracked"] = rows / drained(ground, LOAD, count)
    made.clear(raw)
    return ratios | pushes_beside_bare(ground) | {"start": started(ground)}


def pushes_beside_bare(ground: Ground) -> dict[str, float]:
    """One by one and in bulk."""
    bare, ours, bulk = push_costs(ground, ground.count(PUSHES), lambda: time.process_time() + ground.raw.cpu())
    return {"push": bare / ours, "bulk": bare / bulk}


def started(ground: Ground) -> float:
    """The ping-pong's median over that of a push to an idle worker."""
    count, stamps = ground.count(SAMPLES), ground.stamps
    with worker(ground.server, "-q", "bench_a"), ping(ground.server, ground.raw, stamps) as bare_push:
        waits(stamps, 1, count, tell.enqueue)
        bare = waits(stamps, 1, count, bare_push)
        ours = waits(stamps, 1 + count, count, tell.enqueue)
    return median(bare) / median(ours)


def fallen(stored: Mapping[str, float], found: Mapping[str, float]) -> list[str]:
    """A line for each ratio that fell by a quarter, or that only one side knows."""
    lines = [f"{name}: there is no stored ratio; guard.py --renew" for name in found.keys() - stored.keys()]
    lines += [f"{name}: it is no longer measured; guard.py --renew" for name in stored.keys() - found.keys()]
    for name in stored.keys() & found.keys():
        if found[name] < (1 - FALL) * stored[name]:
            less = 1 - found[name] / stored[name]
            lines.append(f"{name} fell by {less:.0%}: {found[name]:.3f}, stored {stored[name]:.3f} ({RATIOS[name]})")
    return sorted(lines)


def renew(found: Mapping[str, float], machine: str) -> None:
    """Write the stored ratios."""
    lines = [f"# Ratios of bench/guard.py, medians. Measured with: {machine}.", ""]
    lines += [f"{name} = {found[name]:.3f}  # {said}" for name, said in RATIOS.items()]
    STORED.write_text("\n".join(lines) + "\n")


def main() -> int:
    """Measure, hold against what is stored."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=5, help="turns; twice as many when a ratio fell (5)")
    parser.add_argument("--scale", type=float, default=1.0, help="times as many jobs")
    parser.add_argument("--renew", action="store_true", help="store what is measured")
    given = parser.parse_args()
    stored = tomllib.loads(STORED.read_text())
    all_turns: dict[str, list[float]] = defaultdict(list)
    with server() as made:
        raw = made.connect()
        report = Report("guard", raw, live=True)
        ground = Ground(made, raw, report, Stamps(Path(os.environ["BENCH_STAMPS"])), given.scale)
        for half in range(2):
            for turn in range(given.turns):
                found = one_turn(ground)
                for name, ratio in found.items():
                    all_turns[name].append(ratio)
                print(f"  turn {half * given.turns + turn + 1}: " + told(found), flush=True)
            medians = {name: median(ratios) for name, ratios in all_turns.items()}
            lines = fallen(stored, medians)
            if given.renew or not lines:
                break
            print("a ratio fell; measured once more:\n  " + "\n  ".join(lines), flush=True)
    print("medians: " + told(medians))
    if given.renew:
        renew(medians, f"{report.machine['processor']}, {report.machine['python']}, {report.machine['server']}")
        return 0
    print("\n".join(["FAILED", *lines]) if lines else f"passed: no ratio fell by {FALL:.0%}")
    return 1 if lines else 0


def told(ratios: Mapping[str, float]) -> str:
    """In one line."""
    return ", ".join(f"{name} {ratio:.3f}" for name, ratio in ratios.items())


if __name__ == "__main__":
    sys.exit(main())
