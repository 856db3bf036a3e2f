"""What a process is told while it runs: by signal, by its supervisor, over the control channel, by Sidekiq's Web UI."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from henchman.worker.host import Host

__all__ = ["SIDEKIQ_SIGNALS", "Control"]

#: what Sidekiq's Web UI pushes into ``<identity>-signals`` → our word for it
SIDEKIQ_SIGNALS: Mapping[bytes, str] = {b"TSTP": "quiet", b"TERM": "stop", b"TTIN": "dump", b"INT": "stop"}


class Control:
    """Dispatches messages ``verb`` or ``verb argument`` to handlers; an unknown verb is announced, not obeyed."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._verbs: dict[str, Callable[[str], None]] = {}

    def on(self, verb: str, handler: Callable[[str], None]) -> None:
        """Call ``handler(argument)`` for ``verb``."""
        self._verbs[verb] = handler

    def message(self, text: bytes) -> None:
        """Obey one message from the control channel."""
        verb, _, argument = text.decode("utf-8", "replace").partition(" ")
        self.tell(verb, argument)

    def signal(self, name: bytes) -> None:
        """Obey a signal that came through the server."""
        self.tell(SIDEKIQ_SIGNALS.get(name, name.decode("utf-8", "replace")), "")

    def tell(self, verb: str, argument: str = "") -> None:
        """Obey ``verb``."""
        handler = self._verbs.get(verb)
        if handler is None:
            self._host.events.emit("control_unknown", verb=verb)
        else:
            handler(argument)
