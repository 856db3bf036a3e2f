"""``app.ordered``: the part of the app that defines ordered queues. Its types stand in the stub beside it."""

from __future__ import annotations

from typing import Any

__all__ = ["DefinesOrdered"]


class DefinesOrdered:
    """What an app inherits."""

    def ordered(self: Any, *target: Any, name: Any = None, derive: Any = None, **options: Any) -> Any:
        """Define an ordered queue: payloads of one id are never handled twice at once, and lowest score first.

        ``@app.ordered`` or ``@app.ordered(queue="products", claim_size=10)``, on ``def`` or ``async def`` of one
        parameter, a dict of lists of payloads by id. The options are those of ``OrderedOptions`` and queue, timeout,
        log_level, track (each payload has a record in history).
        ``derive``: a function that finds in a payload its id, or a dict of id, score, at, delay. A handler may return a
        dict of exceptions by id for ids that failed.
        DefinitionError names an option that is unknown or wrong, and a queue that is taken.
        """
        define = self.open_door("define_ordered")

        def decorator(function: Any) -> Any:
            return define(function, self, name, {**options, "derive": derive})

        return decorator(*target) if target else decorator
