"""Children of the suite hear every signal, also where the suite itself was started to ignore some (``make test &``)."""

from __future__ import annotations

import signal
from types import FrameType

__all__ = ["IGNORABLE", "let_children_hear"]

#: what shells and nohup let a program in the background ignore; a child inherits that
IGNORABLE = (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM, signal.SIGTSTP)


def let_children_hear() -> None:
    """Go on ignoring what is ignored here, by a handler: unlike ``SIG_IGN`` it is not passed on to a new program."""
    for number in IGNORABLE:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, _ignore)


def _ignore(number: int, frame: FrameType | None) -> None: ...
