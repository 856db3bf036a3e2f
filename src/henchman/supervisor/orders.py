"""What a supervisor tells its child at start, and what an exit status means between them."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["EXIT_CONFIG", "EXIT_CUT_OFF", "Orders"]

EXIT_CUT_OFF = 3  # stopped as told, but not every running job ended in its time: the others were given back
EXIT_CONFIG = 78  # as sysexits.h: the configuration is wrong, another try would end the same way


class Orders(msgspec.Struct):
    """Descriptors are inherited; ``settings`` go before the app's own."""

    target: str
    settings: dict[str, Any]
    status_fd: int
    lifeline_fd: int
    pulse_fd: int
    number: int
