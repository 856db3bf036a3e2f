"""The long form of ``henchman bench``: every measure, in turns, as one report. About ten minutes; ``make bench``.

python bench/run.py                              everything
python bench/run.py --only drain --runs 5        one measure
python bench/run.py --peers                      others beside Henchman, and nothing else: Sidekiq, Celery, RQ, Huey …
python bench/run.py --peers rq --only drain      one of them, and a measure
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

from kinds import KINDS
from peers import PEERS, measure_peers
from surroundings import SURROUNDINGS

from henchman.bench.measures import MEASURES, Ground, Measure, run_measures
from henchman.bench.report import Report
from henchman.bench.server import server
from henchman.bench.stamps import Stamps

ALL = (*MEASURES, *KINDS, *SURROUNDINGS)


def options() -> argparse.Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=[one.name for one in ALL], help="take these measures")
    parser.add_argument("--runs", type=int, default=3, help="runs of each measure (3); those that are long have one")
    parser.add_argument("--scale", type=float, default=1.0, help="times as many jobs")
    parser.add_argument(
        "--peers",
        nargs="*",
        choices=[one.name for one in PEERS],
        help="these others, or all of them, beside Henchman; without --only no other measure is taken",
    )
    parser.add_argument("--json", action="store_true", help="print one line of JSON in place of Markdown")
    parser.add_argument("--out", type=Path, help="write DIR/bench.md and DIR/bench.json as well")
    parser.add_argument("--check", action="store_true", help="exit with status 1 when a figure misses its bar")
    return parser.parse_args()


def main() -> int:
    """What the arguments ask for."""
    given = options()
    peers = () if given.peers is None else tuple(one for one in PEERS if not given.peers or one.name in given.peers)
    chosen = [one for one in ALL if not given.only or one.name in given.only]
    if peers:
        chosen = [] if not given.only else chosen
        chosen.append(
            Measure("peers", "Beside others: jobs that do nothing", lambda ground: measure_peers(ground, peers))
        )
    with server() as made:
        raw = made.connect()
        report = Report("Henchman's bench", raw, made.shown_url, live=False)
        ground = Ground(made, raw, report, Stamps(Path(os.environ["BENCH_STAMPS"])), given.scale)
        run_measures(ground, chosen, given.runs, lambda text: print(text, file=sys.stderr, flush=True))
    document, page = json.dumps(report.document()), report.markdown(bars=True)
    if given.out:
        given.out.mkdir(parents=True, exist_ok=True)
        (given.out / "bench.md").write_text(page)
        (given.out / "bench.json").write_text(document + "\n")
    print(document if given.json else page)
    return 1 if given.check and report.missed() else 0


if __name__ == "__main__":
    sys.exit(main())
