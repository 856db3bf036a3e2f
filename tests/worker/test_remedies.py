"""What ``henchman why`` advises of a job behind a dead one does what it says: the command is run as it stands there."""

from __future__ import annotations

import re
import shlex

import pytest
from click.testing import CliRunner, Result

from henchman import App
from henchman.cli.main import henchman
from support.store import Store
from support.worker import until, working


class Shop:
    """``charge`` is dead, and ``ship`` waits for it."""

    def __init__(self, app: App, store: Store, kind: str) -> None:
        self.app, self.store, self.ran = app, store, list[str]()
        self.broken = True

        def charge(order: str) -> None:
            if self.broken:
                raise ValueError("no")
            self.ran.append("charge")

        keyed = {"key": "order", "once": True} if "key" in kind else {"followed": True} if "id" in kind else {}
        charging = app.job(name="charge", retry=0, **keyed)(charge)
        shipping = app.job(name="ship")(lambda order: self.ran.append("ship"))
        if kind == "step":
            with app.workflow() as flow:
                self.jid = flow.add(shipping.call("17"), after=flow.add(charging.call("17"))).jid
            return
        with app.batch("Orders") as batch:
            pushing = charging.using(batch=batch if "batch" in kind else None)
            handle = pushing.enqueue("17")
        self.jid = shipping.using(after=handle).enqueue("17").jid

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(henchman, [*words, "--redis", self.store.connections.url])


@pytest.mark.parametrize("kind", ["step", "key", "id", "key in a batch", "id in a batch"])
@pytest.mark.parametrize("place", [0, 1], ids=["retry", "release"])
def test_what_why_advises_does_what_it_says(app: App, store: Store, kind: str, place: int) -> None:
    shop = Shop(app, store, kind)

    def reason() -> str:
        return shop.run("why", shop.jid).output

    with working(app):
        until(lambda: "which is dead" in reason(), "it is dead")
    advised = re.findall(r"henchman [^),;]*\w", reason())
    assert len(advised) == 2, reason()
    shop.broken = False
    words = shlex.split(advised[place])[1:]
    told = shop.run(*words)
    assert told.exit_code == 0, (words, told.output)
    with working(app):
        until(lambda: "ship" in shop.ran, f"{advised[place]} lets it run: {told.output}")
    assert shop.ran == (["ship"] if place else ["charge", "ship"])
