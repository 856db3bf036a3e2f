"""What belongs to all system tests."""

from __future__ import annotations

from support.before import is_here

collect_ignore = [] if is_here() else ["test_side_by_side.py"]
