"""Watches the sources and tells the supervisor to roll over: ``henchman work --reload``, for development.

A process of its own (``python -m henchman.supervisor.reload FOLDER``), because its package is the extra ``reload``; it
ends when its parent does.
"""

from __future__ import annotations

import os
import signal
import sys

from watchfiles import PythonFilter, watch


def main() -> None:
    """Send HUP to the parent whenever a Python file below the folder has changed."""
    folder, parent = sys.argv[1], os.getppid()
    for changes in watch(folder, watch_filter=PythonFilter(), rust_timeout=1000, yield_on_timeout=True):
        if os.getppid() != parent:
            return
        if changes:
            paths = sorted(path for _, path in changes)
            sys.stderr.write(f"henchman: {os.path.relpath(paths[0], folder)} has changed\n")
            os.kill(parent, signal.SIGHUP)


if __name__ == "__main__":
    main()
