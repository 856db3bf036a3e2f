"""A recorder as a process of its own, to be killed: ``python -m support.recording_child REDIS_URL DATABASE_URL``."""

from __future__ import annotations

import sys
import time

from henchman.history import recorder as module
from support.history import Home, recording

if __name__ == "__main__":
    module.MOST = 40  # many transactions, so that a kill falls between and into them
    with recording(Home(sys.argv[1], sys.argv[2])) as recorder:
        print("up", flush=True)
        while True:
            time.sleep(max(recorder.tick(), 0) / 20)
