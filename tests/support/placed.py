"""A program that has a place of a limit: ``python -m support.placed URL``; holds it until its input ends."""

from __future__ import annotations

import sys

from henchman import App, Concurrent

if __name__ == "__main__":
    app = App(redis_url=sys.argv[1], lease=5)
    with app.limit(Concurrent("bank", 1)):
        print("has", flush=True)
        sys.stdin.read()
