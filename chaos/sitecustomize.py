"""Read by every Python process of the run, before anything else: what its host does to its clocks."""

import os

if path := os.environ.get("CHAOS_SUSPENDED"):
    import suspended

    suspended.watch(path)

if "libfaketime" in os.environ.get("LD_PRELOAD", ""):
    import select
    import time

    #: libfaketime 0.9.10 answers EINVAL to the sleep of Python 3.11 and later, unless the monotonic clock is wrong too
    time.sleep = lambda seconds: select.select([], [], [], seconds) and None
