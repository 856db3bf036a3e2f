"""A user of the embedded server in a process of its own, told what to do line by line.

``UserProcess(folder)`` is the driving side; the program below is the driven one. It can fork, and its child is then
told what to do by ``child ...``; a child whose parent is gone lives on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from henchman.embedded.folder import recorded_socket
from henchman.embedded.process import ask, info
from henchman.embedded.server import EmbeddedServer
from henchman.errors import EmbeddedServerError
from support.server import server_binary

__all__ = ["UserProcess", "run_id", "say"]


def say(folder: Path, *words: str) -> str:
    """One command to the server that lives in ``folder``."""
    sock = recorded_socket(folder)
    assert sock is not None
    return ask(sock, *words)


def run_id(folder: Path) -> str:
    """What tells one run of a server from another."""
    sock = recorded_socket(folder)
    assert sock is not None
    return info(sock, "server")["run_id"]


class UserProcess:
    """Drives one such process; an answer that is an error is raised as EmbeddedServerError."""

    def __init__(self, folder: Path, *, uid: int | None = None, before: tuple[str, ...] = ()) -> None:
        paths = (str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH"))
        self._process = subprocess.Popen(
            [*before, sys.executable, "-m", "support.embedded_user", str(folder), str(uid or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)},
        )
        try:
            assert self.answer() == "ready"
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """The driven process."""
        return self._process.pid

    def tell(self, words: str) -> None:
        """Send a command without waiting for its answer."""
        assert self._process.stdin
        self._process.stdin.write(words + "\n")
        self._process.stdin.flush()

    def answer(self) -> Any:
        """The answer to the oldest command."""
        assert self._process.stdout
        reply = json.loads(self._process.stdout.readline())
        if "error" in reply:
            raise EmbeddedServerError(reply["error"])
        return reply["ok"]

    def do(self, words: str) -> Any:
        """Send a command and give its answer."""
        self.tell(words)
        return self.answer()

    def kill(self) -> None:
        """kill -9, and wait until it is gone."""
        self._process.kill()
        self.close()

    def close(self) -> None:
        """Let it end by itself."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.wait(timeout=30)
        self._process.stdout.close()


class _User:
    def __init__(self, folder: Path) -> None:
        self.server = EmbeddedServer(folder, binary=server_binary())
        self._to_child: IO[str] | None = None
        self._from_child: IO[str] | None = None

    def serve(self, commands: IO[str], answers: IO[str]) -> None:
        for line in commands:
            name, _, rest = line.strip().partition(" ")
            try:
                reply = {"ok": self.child(rest) if name == "child" else self.do(name)}
            except EmbeddedServerError as error:
                reply = {"error": str(error)}
            print(json.dumps(reply), file=answers, flush=True)

    def do(self, name: str) -> Any:
        actions: dict[str, Callable[[], Any]] = {
            "acquire": self.server.acquire,
            "ensure": self.server.ensure,
            "release": self.server.release,
            "find": self.server.find,
            "threads": self.threads,
            "fork": self.fork,
        }
        return actions[name]()

    def threads(self) -> str:
        urls: list[str] = []
        threads = [threading.Thread(target=lambda: urls.append(self.server.acquire())) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return ",".join(set(urls))

    def fork(self) -> int:
        commands, self_to_child = os.pipe()
        self_from_child, answers = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(self_to_child)
            os.close(self_from_child)
            self.serve(os.fdopen(commands), os.fdopen(answers, "w"))
            signal.alarm(30)  # the parent is gone; nobody may have to look for us later
            signal.pause()
        os.close(commands)
        os.close(answers)
        self._to_child, self._from_child = os.fdopen(self_to_child, "w"), os.fdopen(self_from_child)
        return pid

    def child(self, words: str) -> Any:
        assert self._to_child
        assert self._from_child
        print(words, file=self._to_child, flush=True)
        return json.loads(self._from_child.readline())["ok"]


def main() -> None:
    folder, uid = sys.argv[1:3]
    user = _User(Path(folder))
    if uid:
        os.seteuid(int(uid))
    print(json.dumps({"ok": "ready"}), flush=True)
    user.serve(sys.stdin, sys.stdout)


if __name__ == "__main__":
    main()
