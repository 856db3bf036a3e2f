"""The two parts of a whole run, as ``tools/test`` starts them: ``--part together`` and ``--part alone``.

Most tests wait for processes and servers to start; several of them side by side wait no longer than one. A test that
judges how long something takes, or that needs both cores for itself, would judge its neighbours: it bears
``@pytest.mark.alone("why")``. Without ``--part`` everything runs, in one process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

__all__ = ["COUNTED"]

COUNTED = ("failed", "error", "passed", "skipped", "xfailed", "xpassed")
FIRST = ("system", "history", "interop", "protocol", "worker")  # the folders that take longest: begun first


def pytest_configure() -> None:
    """What the environment says for other ends, and an ignored Ctrl-C; the tests' own processes inherit it.

    Half of what it costs to start one is compiling our modules: the hundreds that are started here do it once.
    """
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # `make test &` of a script: children would inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.pop("COLUMNS", None)  # pytest-xdist tells it the width of its terminal; nothing under test has one


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--part", choices=("together", "alone"), help="only the tests without the mark alone, or with it")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the other part; begin with what takes longest, so that nobody waits for one slow file at the end."""
    alone = {item for item in items if _is_alone(item)}
    part = config.getoption("--part")
    if part is None:
        return
    left_out = [item for item in items if (item in alone) != (part == "alone")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if (item in alone) == (part == "alone")]
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> int:
    folder = item.path.parent.name
    return FIRST.index(folder) if folder in FIRST else len(FIRST)


def _is_alone(item: pytest.Item) -> bool:
    mark = item.get_closest_marker("alone")
    if mark is not None and not (mark.args and isinstance(mark.args[0], str)):
        raise pytest.UsageError(f'{item.nodeid}: say why, as in @pytest.mark.alone("it measures …")')
    return mark is not None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Tell ``tools/test`` how many tests ended how."""
    file = os.environ.get("HENCHMAN_TEST_COUNTS")
    if file:
        counts = {name: len(terminalreporter.stats.get(name, ())) for name in COUNTED}
        Path(file).write_text(json.dumps(counts), encoding="utf-8")
