"""The attack on who fills batches."""

from __future__ import annotations

import contextlib
import signal
import time

from field import Field
from redis import RedisError

__all__ = ["kill_producer"]


def kill_producer(field: Field) -> tuple[int, str]:
    """kill -9 of a producer inside the block of a batch; another one begins anew, and nobody closes that batch."""
    filler = field.filler
    if filler is None:
        return 0, "nobody fills batches"
    began = time.monotonic()
    while time.monotonic() < began + 20.0:
        process = filler.process
        process.send_signal(signal.SIGSTOP)
        inside = 0
        with contextlib.suppress(RedisError, OSError):  # the server may be away just now
            inside = field.filled(process.pid)
        process.send_signal(signal.SIGKILL if inside else signal.SIGCONT)
        if inside:
            process.wait(5)
            filler.start()
            return inside, f"{inside} jobs in its batches by then"
        field.sleep(0.1)
    return 0, "it was never inside a batch"
