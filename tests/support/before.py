"""The last commit before the house was rebuilt (HOUSE), and whether this clone has it."""

from __future__ import annotations

import subprocess
from pathlib import Path

__all__ = ["COMMIT", "ROOT", "is_here"]

ROOT = Path(__file__).resolve().parents[2]
COMMIT = "ad94d28c"


def is_here() -> bool:
    found = subprocess.run(
        ["git", "cat-file", "-e", f"{COMMIT}^{{commit}}"], cwd=ROOT, capture_output=True, check=False
    )
    return found.returncode == 0
