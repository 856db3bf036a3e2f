"""A job passes no more of our files, and no longer functions, than limits.toml says: ``make ways`` shows each way."""

from __future__ import annotations

from pathlib import Path

import pytest

from architecture.source import LIMITS
from architecture.ways import KINDS, Way, table, total, ways

SLACK = {"files": 0, "lines": 30}  # of a measure that a loaded machine may lengthen
FEW = {"files": 1, "lines": 40}  # a way that is shorter than its ceiling by more than this lowers the ceiling


def wrong(found: dict[str, Way]) -> list[str]:
    problems = []
    for kind in KINDS:
        files, _, lines = total(found[kind])
        for what, size in (("files", files), ("lines", lines)):
            ceiling = LIMITS["ways"][kind][what]
            if size > ceiling + SLACK[what]:
                text = f"a {kind} job passes {size} {what}, at most {ceiling}. Its way:\n{table(found[kind])}"
                problems.append(text)
            elif size < ceiling - FEW[what]:
                problems.append(
                    f"limits.toml: [ways] {kind}: {what} is {ceiling}, and only {size} are passed: lower it"
                )
    return problems


@pytest.mark.timeout(120)
def test_no_job_goes_a_longer_way(redis_url: str, tmp_path: Path) -> None:
    found = ways(redis_url, tmp_path)
    if wrong(found):  # once more: on a loaded machine something rare may have happened on the way
        found = ways(redis_url, tmp_path)
    assert not wrong(found), "\n".join(wrong(found))
