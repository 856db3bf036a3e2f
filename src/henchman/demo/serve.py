"""``henchman demo --serve``: after the import the shop goes on selling, beside a console, until Ctrl-C."""

from __future__ import annotations

import importlib.util
import re
import time

from rich.console import Console
from rich.text import Text

from henchman.demo.stage import DemoError, Stage

__all__ = ["SHOP", "serve", "why_not_served"]

SHOP = "henchman.demo.shop:app"
LIMIT = 90.0  # seconds until the console serves and the shop is set up
LOOK = 0.1
#: what there is to click on: an address below the console, with the ids of the import and the workflow
SIGHTS = (
    ("/batches/{batch}", "the import: every row, the refused ones with their reasons"),
    ("/errors", "errors that retries healed, and some that they did not"),
    ("/batches/{workflow}", "a workflow under way, drawn"),
    ("/ordered/stock-levels", "an ordered queue: one id in flight, two that failed, one given up"),
    ("/blocked", "parcels that wait for a payment that was declined: click on one, it says why"),
    ("/busy", "long jobs, with how far they are"),
    ("/keys", "which job holds which order"),
)


def why_not_served() -> str:
    """Empty when a console can be served; else what is missing."""
    missing = [one for one in ("starlette", "uvicorn", "jinja2", "a2wsgi") if not importlib.util.find_spec(one)]
    text = "--serve needs the extra web ({} is missing): pip install 'henchman[web]'"
    return text.format(missing[0]) if missing else ""


def serve(stage: Stage, batch: str, caught: list[int], said: Console) -> None:
    """Trade and serve until a signal. DemoError when a process ends before, or the console does not come up."""
    stage.start("trade", "henchman.demo.trade")
    stage.start("web", "henchman", "web", SHOP, "--port", 0, "--label", "demo shop", "--tone", "development")
    site = _found(stage, caught, "web", r"(http://\S+?)/? ")
    workflow = _found(stage, caught, "trade", r"ready (\S+)")
    if site and workflow:
        said.print(
            Text(f"\nThe console: {site}/", "bold"), Text("  (no password on this machine)", "dim"), soft_wrap=True
        )
        for path, words in SIGHTS:
            where = site + path.format(batch=batch, workflow=workflow)
            said.print(Text(f"  {where}\n      {words}", "dim"), soft_wrap=True)
        said.print(Text("The shop goes on selling. Ctrl-C ends everything and clears it away."))
    while not caught:
        stage.check()
        time.sleep(LOOK)


def _found(stage: Stage, caught: list[int], name: str, pattern: str) -> str:
    """What a process wrote, when it has; empty when a signal came before."""
    end = time.monotonic() + LIMIT
    while not caught:
        stage.check()
        if found := re.search(pattern, stage.written(name)):
            return found[1]
        if time.monotonic() > end:
            raise DemoError(f"{name!r} was not ready after {LIMIT:g} s\n{stage.log_end(name)}")
        time.sleep(LOOK)
    return ""
