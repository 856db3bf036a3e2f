"""``app.iterable``: the part of the app that defines iterable jobs. Its types stand in the stub beside it."""

from __future__ import annotations

from typing import Any

__all__ = ["DefinesIterables"]


class DefinesIterables:
    """What an app inherits."""

    def iterable(
        self: Any,
        *,
        over: Any = None,
        name: Any = None,
        max_iteration_runtime: Any = None,
        **options: Any,
    ) -> Any:
        """Define a long job of many items that goes on where it was after a stop, an error or a kill.

        On a class derived from ``IterableJob``; or with ``over``, a function of the job's arguments and ``cursor``
        that gives (item, cursor) pairs, on a function of (item, the job's arguments). ``max_iteration_runtime``: how
        many seconds it runs before it goes to the end of its queue, for others to have their turn. The other options
        are those of ``@app.job``; ``timeout`` is for each execution.
        """
        if over is None:
            return self.open_door("class_decorator")(self, name, max_iteration_runtime, options)
        return self.open_door("function_decorator")(self, name, max_iteration_runtime, options, over)
