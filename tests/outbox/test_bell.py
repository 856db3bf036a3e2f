"""A relay that waits hears who commits, also after its line went deaf."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from henchman import App
from henchman.errors import ServerError
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


def test_who_may_not_listen_is_told_once_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The relay looks each second all the same."""
    with nodes(tmp_path, 1) as (node,), node.client() as redis:
        redis.execute_command("ACL", "SETUSER", "deaf", "on", ">secret", "~*", "+@all", "resetchannels")
        app = App(redis_url=f"redis://deaf:secret@127.0.0.1:{node.port}/0")
        bell, stopping = Bell(app), threading.Event()
        try:
            with pytest.raises(ServerError, match="No permissions to access a channel"):
                bell.heard(0.1, stopping)
            assert not bell.heard(0.1, stopping)
            monkeypatch.setattr(module, "QUIET", 0.0)
            with pytest.raises(ServerError, match="No permissions to access a channel"):
                bell.heard(0.1, stopping)
        finally:
            bell.close()
            app.close()
