"""The parts of the tests, as ``tools/test`` starts them: ``--part together``, ``alone``, ``scale``, ``browser`` or
``frameworks``.

Most tests wait for processes and servers to start; several of them side by side wait no longer than one. A test that
judges how long something takes would judge its neighbours: it bears ``@pytest.mark.alone("why")``. One that is large by
nature (a million ids, minutes of chaos) bears ``@pytest.mark.scale("why")``, one that needs Chromium
``@pytest.mark.browser("why")``, one that runs a project of a web framework ``@pytest.mark.frameworks("why")``. Without
``--part`` everything runs, in one process.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

MARKS = ("browser", "frameworks", "scale", "alone")  # what is several belongs to the first
ENDS = ("xpassed", "xfailed", "skipped", "passed", "error", "failed")  # the later one counts, where a test has two
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
    parser.addoption("--part", choices=("together", *MARKS), help="only the tests that bear this mark, or neither")
    parser.addoption("--only", action="append", help="of them, only the test with this id")
    parser.addoption("--ends", type=Path, help="write here how each test ended")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Of the parts that few tests bear, only the files that name the mark: to import all others takes some seconds."""
    part = config.getoption("--part")
    if part not in MARKS or not (collection_path.name.startswith("test_") and collection_path.suffix == ".py"):
        return None
    return f"mark.{part}" not in collection_path.read_text(encoding="utf-8") or None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the other parts; begin with what takes longest, so that nobody waits for one slow file at the end."""
    parts = {item: _part(item) for item in items}
    part, only = config.getoption("--part"), config.getoption("--only")
    if part is None:
        return
    left_out = {item for item in items if parts[item] != part or (only and item.nodeid not in only)}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = sorted((item for item in items if item not in left_out), key=_turn)


def _turn(item: pytest.Item) -> int:
    folder = item.path.parent.name
    return FIRST.index(folder) if folder in FIRST else len(FIRST)


def _part(item: pytest.Item) -> str:
    for name in MARKS:
        mark = item.get_closest_marker(name)
        if mark is not None and not (mark.args and isinstance(mark.args[0], str)):
            raise pytest.UsageError(f'{item.nodeid}: say why, as in @pytest.mark.{name}("it measures …")')
        if mark is not None:
            return name
    return "together"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Tell ``tools/test`` how each test ended, what is said of those that failed, and the options for the same seed."""
    file = config.getoption("--ends")
    if file is None:
        return
    reports = [(name, report) for name in ENDS for report in terminalreporter.stats.get(name, ())]
    said: dict[str, str] = {}
    for name, report in reports:
        if name in ("failed", "error"):
            captured = "".join(f"\n-- {title}:\n{text}" for title, text in report.sections)
            said[report.nodeid] = f"{said.get(report.nodeid, '')}{report.longreprtext}{captured}\n"
    seed = config.getoption("randomly_seed", None)
    options = [] if seed is None else [f"--randomly-seed={seed}"]
    told = {"ends": {report.nodeid: name for name, report in reports}, "said": said, "options": options}
    file.write_text(json.dumps(told), encoding="utf-8")
