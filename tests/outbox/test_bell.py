"""A relay that waits hears who commits, also after its line went deaf."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from henchman import App
from henchman.outbox import bell as module
from henchman.outbox.bell import Bell
from support.replicas import Name, nodes
from support.worker import until


def test_a_line_on_which_nothing_arrives_any_more_is_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when a firewall forgot a connection on which nothing is said."""
    with nodes(tmp_path, 1) as (node,), Name(node.port) as name, node.client() as redis:
        app = App(redis_url=name.url)
        bell, stopping = Bell(app), threading.Event()

        def listeners() -> set[str]:
            return {one["addr"] for one in redis.client_list(_type="pubsub")}

        def rings() -> bool:
            redis.publish("hm:outbox:wake", "")
            return bell.heard(0.2, stopping)

        try:
            assert not bell.heard(0.0, stopping)
            assert rings()
            first = listeners()
            name.mute(first)
            assert not rings(), "it is deaf"
            assert listeners() == first
            monkeypatch.setattr(module, "QUIET", 0.1)
            assert not bell.heard(0.0, stopping)
            monkeypatch.undo()
            assert rings()
            assert len(listeners() - first) == 1
        finally:
            bell.close()
            app.close()
        until(lambda: not listeners() - first, "it hangs up")
