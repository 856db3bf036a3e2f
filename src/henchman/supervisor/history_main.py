"""The body of the history process (``python -m henchman.supervisor.history_main``), one for each supervisor.

It is a process of its own with a low priority: its work with the database takes no interpreter lock and little
processor time from the workers. Its configuration is one line on standard input, because that may hold passwords; the
end of the input means that it is to finish, or that its supervisor is gone.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time

from henchman.config import Config
from henchman.errors import HenchmanError, ServerError
from henchman.history.recorder import Recorder, companion
from henchman.kernel.events import Events
from henchman.log import handler as log
from henchman.supervisor.child import EXIT_CONFIG
from henchman.supervisor.server_link import ServerLink

LAST = 5.0  # seconds for what is still in the stream when it is told to end
AGAIN = 0.2
POLITE = 5


def record(config: Config) -> None:
    """Record until the input ends."""
    log.setup(config.log_format, config.log_level, process_tag="history")
    link = ServerLink(config)
    announcer = log.subscribe(link.events, config.log_level)
    try:
        recorder = companion(link)
        if recorder is None:
            return
        recorder.start()
        while sys.stdin.buffer.read(1):
            pass
        recorder.stop()
        _drain(recorder, link.events)
        recorder.stop()
    finally:
        announcer.flush()
        link.close()


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
    """The body of ``python -m henchman.supervisor.history_main``."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # of its group; its supervisor says when, by closing the input
    os.nice(POLITE)
    try:
        record(Config.from_json(sys.stdin.buffer.readline().decode()))
    except HenchmanError as error:
        logging.getLogger("henchman").error("history cannot be written", extra={"error": str(error)})
        os._exit(1 if isinstance(error, ServerError) else EXIT_CONFIG)  # another may find the server well


if __name__ == "__main__":
    main()
