"""The examples as processes: what a reader of their pages starts and asks."""

from __future__ import annotations

import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.server import DIE_WITH_PARENT

__all__ = ["EXAMPLES", "ask", "free_ports", "process"]

EXAMPLES = Path(__file__).parents[2] / "examples"


@contextmanager
def process(words: list[str], folder: Path, env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("wb") as out:
        made = subprocess.Popen(
            [sys.executable, "-ISc", DIE_WITH_PARENT, str(Path(sys.executable).parent / words[0]), *words[1:]],
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        yield made
    finally:
        made.terminate()
        made.wait(60)


def free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as other:
        for found in (one, other):
            found.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1]), int(other.getsockname()[1])


def ask(port: int, path: str, method: str = "GET") -> tuple[int, str]:
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
