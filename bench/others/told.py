"""For the programs of this folder: noting when a job ran, and the loop around their pushes.

Each runs in an environment of its own, without Henchman: the stamps are loaded from their file.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time

URL = os.environ["BENCH_URL"]
_spec = importlib.util.spec_from_file_location("stamps", os.environ["BENCH_STAMPS_CODE"])
_module = importlib.util.module_from_spec(_spec)
sys.modules["stamps"] = _module
_spec.loader.exec_module(_module)
write = _module.Stamps.of_environment().write  # note that job ``number`` has started


def numbers():
    """(Numbers that are pushed one by one, those that may be pushed in any way)."""
    single, count = int(sys.argv[1]), int(sys.argv[2])
    return range(single), range(single, count)


def pushed(push):
    """Push jobs one by one by ``push(number)``, and print how many a second."""
    single, _ = numbers()
    began = time.perf_counter()
    for number in single:
        push(number)
    told(len(single), began)


def told(count, began):
    """Print the rate of ``count`` pushes since ``began``."""
    print(json.dumps(count / (time.perf_counter() - began)))
