"""``OrderedWorker``: an ordered queue as a class whose attributes are the options, as in Lowkiq."""

from __future__ import annotations

import inspect
import os
import threading
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, ClassVar, Final

from henchman.client.registry import wire_name
from henchman.errors import DefinitionError
from henchman.ordered.definition import OrderedJob, make_ordered, with_queue
from henchman.ordered.options import ALIASES, KNOWN, foreign, one_name_each
from henchman.ordered.push import Home, OrderedPush, OrderedPushed

__all__ = ["OrderedWorker", "define_class"]

_OURS: Final = frozenset({*KNOWN, *ALIASES})
_NEAR: Final = 0.85
#: options that may be methods
_METHODS: Final = ("retry_in", "retries_exhausted", "derive")


class OrderedWorker:
    """The base of a worker class. Write ``perform(self, claim)``, ``def`` or ``async def``, below ``@app.ordered``.

    Its attributes are the options of ``@app.ordered``, also under Lowkiq's names; ``retry_in(self, count, error)``,
    ``retries_exhausted(self, items)`` and ``derive(self, payload)`` may be methods. One instance a process, made
    without arguments at first use, serves all threads. Pushing is the class's: ``SyncProduct.push(42, …)``; a class
    may override ``push`` and the others and call ``super()``.
    """

    #: its definition, once ``@app.ordered`` made one
    job: ClassVar[Any] = None

    @classmethod
    def push(cls, *args: Any, **options: Any) -> OrderedPush:
        """Put a payload under an id, see ``OrderedJob.push``."""
        made: OrderedPush = cls._defined().push(*args, **options)
        return made

    @classmethod
    async def apush(cls, *args: Any, **options: Any) -> OrderedPush:
        """``push``, awaited."""
        made: OrderedPush = await cls._defined().apush(*args, **options)
        return made

    @classmethod
    def push_many(cls, *args: Any, **options: Any) -> OrderedPushed:
        """Push each row, see ``OrderedJob.push_many``."""
        made: OrderedPushed = cls._defined().push_many(*args, **options)
        return made

    @classmethod
    async def apush_many(cls, *args: Any, **options: Any) -> OrderedPushed:
        """``push_many``, awaited."""
        made: OrderedPushed = await cls._defined().apush_many(*args, **options)
        return made

    @classmethod
    def _defined(cls) -> Any:
        made = cls.__dict__.get("job")  # its own: a class derived from a worker is another one
        if made is None:
            raise DefinitionError(f"{cls.__qualname__} has no queue yet: put @app.ordered above it")
        return made


class _Instance:
    """The one instance of a worker class in this process."""

    def __init__(self, cls: type[Any]) -> None:
        self._cls = cls
        self._lock = threading.Lock()
        self._made: tuple[int, Any] | None = None

    def __call__(self) -> Any:
        made = self._made
        if made is None or made[0] != os.getpid():  # what a parent process made is not for its forked children
            with self._lock:
                made = self._made
                if made is None or made[0] != os.getpid():
                    made = self._made = (os.getpid(), self._cls())
        return made[1]


class _Body:
    """What a worker calls. It stands for the user's code, by which definitions are compared."""

    def __init__(self, cls: type[Any], instance: _Instance) -> None:
        perform = inspect.unwrap(cls.perform)
        self.__code__ = perform.__code__
        self.__globals__ = perform.__globals__  # what the annotations mean
        self.__doc__ = cls.__doc__
        self.__name__ = cls.__name__
        self.__qualname__ = cls.__qualname__
        self.__module__ = cls.__module__
        parameters = list(inspect.signature(cls.perform).parameters.values())
        self.__signature__ = inspect.Signature(parameters[1:])
        self._instance = instance

    def __call__(self, claim: Any) -> Any:
        return self._instance().perform(claim)


def define_class(cls: Any, home: Home, name: str | None, given: Mapping[str, Any]) -> OrderedJob[Any]:
    """The ordered job of a worker class, registered; what is ``given`` goes before its attributes."""
    where = _checked(cls)
    instance = _Instance(cls)
    options = _attributes(cls, where)
    said = options.pop("name", None)
    wire = name if name is not None else said if said is not None else wire_name(cls)
    asked = dict(with_queue(where, cls.__name__, {**options, **one_name_each(where, given)}))
    for option in _METHODS:
        if callable(options.get(option)) and option not in given:
            asked[option] = _late(cls, instance, option)
    body = _Body(cls, instance)
    made = make_ordered(body, home, wire, asked, is_async=inspect.iscoroutinefunction(cls.perform))
    cls.job = made
    return made


def _checked(cls: Any) -> str:
    if not isinstance(cls, type) or not issubclass(cls, OrderedWorker):
        raise DefinitionError(f"@app.ordered is for functions and classes derived from OrderedWorker, not for {cls!r}")
    where = cls.__qualname__
    perform = inspect.getattr_static(cls, "perform", None)
    if not inspect.isfunction(perform):
        raise DefinitionError(f"{where} has no method perform(self, claim)")
    if inspect.isgeneratorfunction(perform) or inspect.isasyncgenfunction(perform):
        raise DefinitionError(f"{where}.perform is a generator; a handler returns, it does not yield")
    needed = [one for one in inspect.signature(cls).parameters.values() if one.default is one.empty]
    if any(one.kind < one.VAR_POSITIONAL or one.kind is one.KEYWORD_ONLY for one in needed):
        raise DefinitionError(f"{where}() must need no arguments: Henchman makes the instance")
    return where


def _attributes(cls: type[Any], where: str) -> dict[str, Any]:
    """The options that stand in the class, or in those it derives from, the nearest first."""
    found: dict[str, Any] = {}
    for one in cls.__mro__[: cls.__mro__.index(OrderedWorker)]:
        said = {}
        for name, value in vars(one).items():
            if name in _OURS or name == "name":
                said[name] = value.__func__ if isinstance(value, staticmethod | classmethod) else value
            elif not name.startswith("_") and not callable(getattr(value, "__get__", None)):
                _check_attribute(where, name, value)
        found = {**one_name_each(where, said), **found}
    return found


def _check_attribute(where: str, name: str, value: Any) -> None:
    """Nothing is accepted and ignored: a plain value that is named like an option is meant to be one."""
    if not isinstance(value, str | int | float | tuple | list | type(None)):
        return
    why = foreign(name)
    if why is not None:
        raise DefinitionError(f"{where}.{name} is not for ordered queues: {why}")
    near = get_close_matches(name, _OURS, n=1, cutoff=_NEAR)
    if near:
        raise DefinitionError(f"{where}.{name}: there is no such option; did you mean {near[0]!r}?")


def _late(cls: type[Any], instance: _Instance, option: str) -> Any:
    """A method of the instance as a function, without making the instance now."""

    def late(*args: Any) -> Any:
        return getattr(instance(), option)(*args)

    static = inspect.getattr_static(cls, option)
    parameters = list(inspect.signature(getattr(cls, option)).parameters.values())
    mine = parameters if isinstance(static, staticmethod | classmethod) else parameters[1:]
    late.__signature__ = inspect.Signature(mine)  # type: ignore[attr-defined]  # inspect reads it
    return late
