"""Two checkouts side by side: the same benches in turns, and how the figures of the second stand to the first's.

    git worktree add ../before COMMIT
    python bench/compare.py ../before . run --turns 5 -- --only drain push
    python bench/compare.py ../before . contracts -- --jobs 20000

Each turn runs a bench once in either, and the next turn in the other order. A ratio is the median of those within a
turn: what slows the machine slows both.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

LIMIT = 900.0  # seconds of one run


def figures(tree: Path, bench: str, rest: list[str]) -> dict[str, float]:
    """What one run of a bench of ``tree`` says."""
    command = [sys.executable, str(tree / "bench" / f"{bench}.py"), "--runs", "1", "--json", *rest]
    env = os.environ | {"PYTHONPATH": str(tree / "src")}
    done = subprocess.run(command, env=env, cwd=tree, capture_output=True, text=True, timeout=LIMIT, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)} ended with status {done.returncode}:\n{done.stderr}")
    told = json.loads(done.stdout.splitlines()[-1])
    return {name: float(one["median"]) for name, one in told["figures"].items()}


def main() -> int:
    """Take turns and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("benches", nargs="+", help="files of bench/, without .py")
    parser.add_argument("--turns", type=int, default=5)
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options, rest = parser.parse_args(sys.argv[1:split]), sys.argv[split + 1 :]
    sides = {"before": options.before.resolve(), "after": options.after.resolve()}
    for bench in options.benches:
        found: dict[str, dict[str, list[float]]] = {side: defaultdict(list) for side in sides}
        for turn in range(options.turns):
            for side in sorted(sides, reverse=turn % 2 == 0):
                for name, value in figures(sides[side], bench, rest).items():
                    found[side][name].append(value)
        for name, before in found["before"].items():
            after = found["after"].get(name, [])
            if len(after) == len(before) and all(before):
                ratio = statistics.median([two / one for one, two in zip(before, after, strict=True)])
                one, two = statistics.median(before), statistics.median(after)
                print(f"{bench:10} {name:16} before {one:14,.2f}  after {two:14,.2f}  after / before {ratio:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
