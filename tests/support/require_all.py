"""With ``HENCHMAN_REQUIRE_ALL=1``, as in CI, a test that would be skipped fails: nothing is silently left out."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

REQUIRED = os.environ.get("HENCHMAN_REQUIRE_ALL", "") not in ("", "0")


def _insist(report: pytest.TestReport | pytest.CollectReport) -> None:
    if REQUIRED and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"HENCHMAN_REQUIRE_ALL is set, and this would be skipped: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _insist(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _insist(report)
    return report
