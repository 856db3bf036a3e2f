"""The body of the process that writes history (``python -m henchman.supervisor.record``), one for each supervisor.

It is a process of its own, and a polite one, so that what it does with the database takes no interpreter lock and as
little processor time as can be from the workers. It gets its configuration as one line on standard input, because that
may hold passwords; the end of the input means that it is to finish, or that its supervisor is gone.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time

from henchman.config import Config
from henchman.embedded.server import EmbeddedServer
from henchman.errors import HenchmanError, ServerError
from henchman.history.recorder import Recorder, companion
from henchman.kernel.events import Events
from henchman.log import handler as log
from henchman.store.connection import Connections
from henchman.store.keys import Keys
from henchman.supervisor.orders import EXIT_CONFIG

__all__ = ["main"]

LAST = 5.0  # seconds for what is still in the stream when it is told to end
AGAIN = 0.2
POLITE = 5


class _Home:
    """What a recorder needs of an app."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.keys = Keys(config.namespace)
        self.events = Events()
        self._server = None if config.redis_url is not None else EmbeddedServer(config.server_folder())
        url = config.redis_url if self._server is None else self._server.acquire()
        limits = {"connect_timeout": config.connect_timeout, "io_timeout": config.io_timeout}
        self.connections = Connections(str(url), **limits, revive=self._revive if self._server else None)

    def _revive(self) -> bool:
        if self._server is not None:
            self._server.ensure()
        return True

    def close(self) -> None:
        """Close what is open, and leave the embedded server."""
        self.connections.close()
        if self._server is not None:
            self._server.release()


def record(config: Config) -> None:
    """Record until the input ends."""
    home = _Home(config)
    log.setup(config.log_format, config.log_level, process_tag="history")
    logging.getLogger("alembic").setLevel(logging.WARNING)  # each step of a migration is no news
    announcer = log.subscribe(home.events, config.log_level)
    try:
        recorder = companion(home)
        if recorder is None:
            return
        recorder.start()
        while sys.stdin.buffer.read(1):
            pass
        recorder.stop()
        _drain(recorder, home.events)
        recorder.stop()
    finally:
        announcer.flush()
        home.close()


def _drain(recorder: Recorder, events: Events) -> None:
    """What is still in the stream, for some seconds: a server that is away, or full, may be back in time."""
    end = time.monotonic() + LAST
    while True:
        try:
            recorder.drain(end - time.monotonic())
            return
        except ServerError as error:
            if time.monotonic() + AGAIN > end:
                events.failed(recorder.name, error)  # the next one finds it
                return
            time.sleep(AGAIN)


def main() -> None:
    """The body of ``python -m henchman.supervisor.record``."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # of its group; its supervisor says when, by closing the input
    os.nice(POLITE)
    try:
        record(Config.from_json(sys.stdin.buffer.readline().decode()))
    except HenchmanError as error:
        sys.stderr.write(f"henchman: history: {error}\n")
        sys.stderr.flush()
        os._exit(1 if isinstance(error, ServerError) else EXIT_CONFIG)  # another may find the server well


if __name__ == "__main__":
    main()
