"""The line of an act, when the console dies while it is written."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from henchman import App
from henchman.inspector import audit
from henchman.store.call import run

PROGRAM = """\
import sys
from henchman import App
from henchman.inspector import audit
from henchman.kernel import failpoints
from henchman.store.call import run

app = App(redis_url=sys.argv[1])

def begin(jid):
    return run(app.connections, audit.begin(app.keys, "10.0.0.1", "retry", "dead", [jid]))

begun = begin("j0")
failpoints.open_points("kill@audit:" + sys.argv[3])
if sys.argv[2] == "begin":
    begin("j1")
run(app.connections, audit.end(app.keys, begun, "1 job put into its queue", done=True))
"""


@pytest.mark.parametrize(
    ("which", "where", "left"),
    [
        ("begin", "before", ["begun"]),
        ("begin", "after", ["begun", "begun"]),
        ("end", "before", ["begun"]),
        ("end", "after", ["done"]),
    ],
)
def test_a_console_is_killed_while_it_writes_down_an_act(app: App, which: str, where: str, left: list[str]) -> None:
    """The line of its beginning stands, or that of its end: never both, never none after it was begun."""
    words = [sys.executable, "-c", PROGRAM, app.config.redis_url, which, where]
    assert subprocess.run(words, check=False, timeout=60).returncode == -signal.SIGKILL
    found = run(app.connections, audit.audited(app.keys, "", 0, 9))
    assert [one.outcome for one in found.entries] == left
    assert found.total == len(left)
