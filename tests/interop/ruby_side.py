"""The real Ruby Sidekiq beside ours: one process that answers questions, one worker, one web server.

Ruby is told what to do in Ruby: ``ruby("Sidekiq::Queue.new(a[0]).size", "mail")`` gives the value, by way of JSON.
"""

from __future__ import annotations

import html
import http.client
import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.parse
from pathlib import Path
from typing import Any, Self

from redis import Redis

from support.worker import until

__all__ = ["Ruby", "RubyError", "RubyWeb", "RubyWorker", "missing", "trace"]

HERE = Path(__file__).parent / "ruby"
_NOISE = {"RUBYOPT": "-W0"}
# A killed test run leaves nothing behind: PR_SET_PDEATHSIG, set in the process that becomes Ruby.
_DIE_WITH_PARENT = "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 9); os.execvp(sys.argv[1], sys.argv[1:])"


def missing() -> str:
    """What is not installed, as a reason to skip; empty when all of it is there."""
    programs = [name for name in ("ruby", "sidekiq", "puma") if shutil.which(name) is None]
    if programs:
        return f"{', '.join(programs)} not installed: apt-get install ruby-sidekiq puma"
    return ""


class RubyError(Exception):
    """What was raised in Ruby."""


class _Process:
    """A Ruby process with its log. The folder of Ruby files is where it runs."""

    def __init__(self, url: str, *command: str, piped: bool = False) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed at the end
        pipe = subprocess.PIPE if piped else None
        self.process = subprocess.Popen(
            [sys.executable, "-ISc", _DIE_WITH_PARENT, *command],
            cwd=HERE,
            env=os.environ | _NOISE | {"INTEROP_REDIS_URL": url.partition("?")[0]},
            stdin=pipe or subprocess.DEVNULL,
            stdout=pipe or self._log,
            stderr=self._log,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def log(self) -> str:
        """What it printed so far."""
        size = os.fstat(self._log.fileno()).st_size
        return os.pread(self._log.fileno(), size, 0).decode("utf-8", "replace")

    def end(self) -> None:
        """Leave nothing running."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(90)
        for stream in (self.process.stdin, self.process.stdout, self._log):
            if stream is not None:
                stream.close()


class Ruby(_Process):
    """A Ruby with Sidekiq and its API loaded, which evaluates what it is sent."""

    def __init__(self, url: str) -> None:
        super().__init__(url, "ruby", "driver.rb", piped=True)
        self._held = b""
        assert self._answer(90.0) == "ready"

    def __call__(self, code: str, *args: Any, limit: float = 90.0) -> Any:
        """The value of ``code``, which sees ``args`` as ``a``; RubyError with what it raised."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"code": code, "args": args}).encode() + b"\n")
        self.process.stdin.flush()
        return self._answer(limit)

    def _answer(self, limit: float) -> Any:
        assert self.process.stdout is not None
        end = time.monotonic() + limit
        while b"\n" not in self._held:
            ready, _, _ = select.select([self.process.stdout], [], [], max(end - time.monotonic(), 0.0))
            assert ready, f"Ruby did not answer within {limit:g} s: {self.log[-2000:]}"
            some = os.read(self.process.stdout.fileno(), 1 << 20)
            assert some, f"Ruby ended: {self.log[-2000:]}"
            self._held += some
        line, _, self._held = self._held.partition(b"\n")
        answer = json.loads(line)
        if "error" in answer:
            raise RubyError("\n".join([answer["error"], *answer["backtrace"]]))
        return answer["value"]


class RubyWorker(_Process):
    """``sidekiq -r ./jobs.rb``, ready when its record is there."""

    def __init__(self, url: str, redis: Redis, *queues: str, concurrency: int = 2, timeout: int = 8) -> None:
        names = [word for queue in queues for word in ("-q", queue)]
        super().__init__(url, "sidekiq", "-r", "./jobs.rb", "-c", str(concurrency), "-t", str(timeout), *names)
        try:
            until(lambda: self.identity_in(redis), "Ruby's worker is up")
        except AssertionError:
            print(self.log)
            self.end()
            raise
        self.identity = self.identity_in(redis)

    def identity_in(self, redis: Redis) -> str:
        """Its identity as the server knows it; empty as long as it does not."""
        assert self.process.poll() is None, f"Ruby's worker ended: {self.log[-2000:]}"
        found = [one.decode() for one in redis.smembers("processes")]  # type: ignore[union-attr]
        return next((one for one in found if one.split(":")[-2] == str(self.pid)), "")

    def stop(self, limit: float = 90.0) -> int:
        """TERM, and wait; its exit status."""
        self.process.terminate()
        return self.process.wait(limit)


class RubyWeb(_Process):
    """Sidekiq's own pages under puma. Keeps the cookie that its protection of forms needs."""

    def __init__(self, url: str) -> None:
        super().__init__(url, "puma", "-b", "tcp://127.0.0.1:0", "-t", "1:2", "-e", "production", "web.ru")
        found = until(lambda: re.search(r"Listening on http://127\.0\.0\.1:(\d+)", self.log), "puma listens")
        self._port = int(found[1])
        self._cookie = ""

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a page."""
        return self._ask("GET", path)

    def page(self, path: str) -> str:
        """The text of a page that has to be there."""
        status, text = self.get(path)
        assert status == 200, f"GET {path}: {status}\n{text[:3000]}\n{self.log[-3000:]}"
        return text

    def press(self, path: str, button: str, action: str | None = None, **fields: str) -> None:
        """Press a button of the page at ``path``, as a browser does; ``action`` is where its form goes."""
        token = re.search(r'name="authenticity_token" value="([^"]+)"', self.page(path).replace("'", '"'))
        assert token, f"{path} has no form"
        form = {"authenticity_token": html.unescape(token[1]), button: "1", **fields}
        status, text = self._ask("POST", action or path, urllib.parse.urlencode(form))
        assert status == 302, f"POST {action or path} {form}: {status}\n{text[:3000]}\n{self.log[-3000:]}"

    def _ask(self, method: str, path: str, body: str | None = None) -> tuple[int, str]:
        headers = {"Cookie": self._cookie} if self._cookie else {}
        if body is not None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=90)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            cookie = answer.getheader("Set-Cookie")
            if cookie:
                self._cookie = cookie.partition(";")[0]
            return answer.status, answer.read().decode("utf-8", "replace")
        finally:
            connection.close()


def trace(redis: Redis) -> list[list[Any]]:
    """What Ruby's jobs wrote: [event, jid, facts…], in order."""
    return [json.loads(row) for row in redis.lrange("ruby:trace", 0, -1)]  # type: ignore[union-attr]
