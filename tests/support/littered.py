"""A process in which jobs are struck and looked at while garbage is collected that gives the interpreter lock away.

    python -m support.littered JOBS

Prints how many were struck. CPython 3.11 collects wherever it makes an object: also in the middle of such a look.
"""

from __future__ import annotations

import gc
import sys
import threading
import time

from henchman import JobTimeout
from henchman.worker.watchdog import Standstill, strike, thread_stacks
from support.runs import running_a_job


class Litter:
    """A cycle whose end waits a moment, as that of a socket may."""

    def __init__(self) -> None:
        self.me = self

    def __del__(self) -> None:
        time.sleep(0)  # gives the interpreter lock away


def _litter() -> None:
    while True:
        Litter()
        time.sleep(0)  # the others' turn


def _deep(left: int) -> None:
    if left:
        _deep(left - 1)


def _job() -> None:
    while True:
        _deep(12)  # frames that come and go


def main(jobs: int) -> int:
    struck, standstill = 0, Standstill()
    threading.Thread(target=_litter, daemon=True).start()
    gc.set_threshold(20)
    sys.setswitchinterval(1e-5)
    for _ in range(jobs):  # each is a thread that starts and ends: that needs the lock of all threads
        with running_a_job(_job) as (slot, run, thread, raised):
            standstill.look([slot], 5.0)
            thread_stacks()
            while strike(slot, run, JobTimeout) != "struck":
                time.sleep(0)  # the job's turn
            thread.join()
            struck += [type(error) for error in raised] == [JobTimeout]
    return struck


if __name__ == "__main__":
    print(main(int(sys.argv[1])), flush=True)
