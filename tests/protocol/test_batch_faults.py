"""For every script of batches, a kill before it and one between its execution and its answer; then a lost answer.

What a script does is there as a whole or not at all, and who says it again says it once.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from henchman.errors import ServerAway
from henchman.kernel import failpoints
from henchman.store.call import load
from support.batch_calls import CALLS, everything, there_is_a_batch
from support.mortal import Nursery
from support.store import Store

WHERE = ["before", "after"]


class Scene:
    """A server with a batch, and what it would hold if the call were executed without trouble."""

    def __init__(self, store: Store, script: str) -> None:
        self.store, self._call = store, CALLS[script](store.keys)
        self.again = self._call.again
        there_is_a_batch(store)
        self.untouched = everything(store)
        self.run()
        self.done = everything(store)
        store.ask("FLUSHALL")
        there_is_a_batch(store)
        store.ask("SCRIPT", "LOAD", load(script).text)  # so that the first passing is the one that executes it
        assert everything(store) == self.untouched != self.done

    def run(self) -> None:
        self.store.run(self._call)

    def now(self) -> dict[str, Any]:
        return everything(self.store)


@pytest.fixture
def scene(redis_url: str, script: str) -> Iterator[Scene]:
    store = Store(redis_url)
    yield Scene(store, script)
    failpoints.close()
    store.connections.close()


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("script", CALLS)
def test_who_changes_a_batch_is_killed(
    scene: Scene, mortals: Nursery, redis_url: str, tmp_path: Path, script: str, where: str
) -> None:
    fault = f"kill@{script}:{where}#1"
    order = {"part": "client", "do": "batch", "script": script, "url": redis_url, "trace": tmp_path / "trace"}

    assert mortals.run(faults=fault, folder=tmp_path, **order) == -signal.SIGKILL

    assert (tmp_path / fault).exists()
    assert scene.now() == (scene.untouched if where == "before" else scene.done)
    if scene.again or where == "before":
        scene.run()
    assert scene.now() == scene.done


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("script", CALLS)
def test_who_changes_a_batch_loses_its_connection(scene: Scene, script: str, where: str) -> None:
    """Sent again where that changes nothing; else its caller is told that it is not known."""
    failpoints.open_points(f"drop@{script}:{where}")
    if scene.again:
        scene.run()
        assert scene.now() == scene.done
    else:
        with pytest.raises(ServerAway) as caught:
            scene.run()
        assert caught.value.executed is None
        assert scene.now() == (scene.untouched if where == "before" else scene.done)
