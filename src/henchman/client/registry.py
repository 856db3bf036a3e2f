"""Name ↔ definition. Only what is registered here ever runs: a payload cannot make a worker import anything."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from henchman.client.fair import fair_queues, tenant_of
from henchman.client.keyed import KeyRule
from henchman.client.needs import check_after, check_rings
from henchman.client.options import ONCE_FOR, JobOptions
from henchman.errors import DefinitionError, UnknownJob
from henchman.kernel.text import did_you_mean, shorten, visible
from henchman.limits.kinds import Limit
from henchman.wire.arguments import Signature

__all__ = ["Definition", "Registry", "load_modules", "wire_name"]


class Definition(Protocol):
    """What the worker needs to know of a job."""

    @property
    def name(self) -> str: ...
    @property
    def function(self) -> Any: ...
    @property
    def is_async(self) -> bool: ...
    @property
    def hears_cancel(self) -> bool: ...
    @property
    def options(self) -> JobOptions: ...
    @property
    def signature(self) -> Signature: ...


class Registry:
    """The jobs of one app by their name on the wire."""

    def __init__(self) -> None:
        self._by_name: dict[str, Definition] = {}
        self._aliases: dict[str, Definition] = {}
        self._ordered: dict[str, Definition] = {}
        self.more_queues: set[str] = set()  # to be served, though no definition names them

    def __iter__(self) -> Iterator[Definition]:
        return iter(tuple(self._by_name.values()))

    def __len__(self) -> int:
        return len(self._by_name)

    def add(self, definition: Definition) -> None:
        """Register; DefinitionError when another function has this name or an alias, or its queue is of another kind,
        already."""
        present = self._by_name.get(definition.name)
        if present is not None and not _same_place(present.function, definition.function):
            raise DefinitionError(
                f"two functions are called {definition.name!r}: {_place(present.function)} and "
                f"{_place(definition.function)}; give one of them another name="
            )
        self._check_aliases(definition, present)
        self._check_queues(definition)
        self._check_key(definition)
        self.check_limits(definition.name, definition.options.limits)
        self._by_name[definition.name] = definition
        for alias in [alias for alias, other in self._aliases.items() if other is present]:
            del self._aliases[alias]
        self._aliases |= dict.fromkeys(definition.options.aliases, definition)
        stale = [queue for queue, other in self._ordered.items() if other is present]
        for queue in stale:
            del self._ordered[queue]
        self._ordered |= dict.fromkeys(_ordered_queues(definition), definition)

    def _check_aliases(self, definition: Definition, present: Definition | None) -> None:
        """A name in a payload means one job."""
        name, other = definition.name, self._aliases.get(definition.name)
        if other is not None and other is not present:
            raise DefinitionError(
                f"{name!r} is an alias of {other.name}, so jobs of that name are its own: take it out of its aliases=, "
                "or give this job another name="
            )
        for alias in definition.options.aliases:
            taken = self.find(alias)
            if alias == name:
                raise DefinitionError(f"{name}: aliases= names the job itself; give the names that it had before")
            if taken is not None and taken is not present:
                what = f"is the job at {_place(taken.function)}" if taken.name == alias else f"is one of {taken.name}"
                raise DefinitionError(
                    f"{name}: aliases= has {alias!r}, which {what}: a name in a payload means one job"
                )

    def _check_queues(self, definition: Definition) -> None:
        """One name is one kind: a queue of plain jobs, or that of one ordered definition."""
        mine = _ordered_queues(definition)
        named = mine or {definition.options.queue, definition.options.retry_queue}
        theirs = {queue: other for queue, other in self._ordered.items() if queue in named}
        if mine:
            plain = (one for one in self._by_name.values() if not _ordered_queues(one))
            theirs |= {
                queue: one for one in plain for queue in (one.options.queue, one.options.retry_queue) if queue in mine
            }
        for queue, other in theirs.items():
            if other.name != definition.name:
                raise DefinitionError(
                    f"{definition.name}: queue {queue!r} is taken by {other.name}; "
                    f"{'an ordered queue' if mine else 'that is an ordered queue, which'} shares its name with nothing "
                    "else: give one of them another queue="
                )

    def _check_key(self, definition: Definition) -> None:
        """A key names parameters; jobs of one scope remember for one time, so that everybody knows where to look; and
        none waits for itself."""
        options = definition.options
        tenant_of(definition.name, options, definition.signature)
        check_after(definition.name, options, definition.signature, options.after)
        if options.key is None:
            return
        scope, mine = KeyRule(definition.name, options, definition.signature).scope, options.once_for or ONCE_FOR
        for other in self._by_name.values():
            theirs = other.options
            both = (theirs.once or theirs.followed) and (options.once or options.followed)
            if other.name == definition.name or theirs.key is None or not both:
                continue
            if (theirs.scope or other.name) == scope and (theirs.once_for or ONCE_FOR) != mine:
                raise DefinitionError(
                    f"{definition.name}: once_for is {mine:g} s, and {other.name} of the same scope {scope!r} has "
                    f"{theirs.once_for or ONCE_FOR:g} s: give both the same"
                )
        check_rings(self._by_name | {definition.name: definition})

    def check_limits(self, name: str, limits: Iterable[Limit]) -> None:
        """DefinitionError where a job called ``name`` has another idea of a limit than one that was defined before."""
        known = {one.name: (one, job) for job in self._by_name.values() for one in job.options.limits}
        for one in limits:
            there, job = known.get(one.name, (one, None))
            if job is not None and job.name != name and one.said("")[:-1] != there.said("")[:-1]:
                raise DefinitionError(
                    f"{name}: the limit {one.name!r} is {_shown(one)} here and {_shown(there)} of {job.name}: a limit "
                    "is one thing; define it once and name it in both, or give it another name"
                )

    def limits(self) -> list[Limit]:
        """The limits that definitions name, each once."""
        return list({one.name: one for job in self._by_name.values() for one in job.options.limits}.values())

    def ordered(self) -> dict[str, Definition]:
        """The ordered queues, each with the definition that handles it."""
        return self._ordered

    def refuse_ordered(self, name: str, queue: str | None) -> None:
        """DefinitionError when a job ``name`` in ``queue`` would be a plain one where only ordered work is."""
        mine = self.find(name)
        if mine is not None and _ordered_queues(mine):
            raise DefinitionError(
                f"{name} has an ordered queue, where jobs are not enqueued: use its push(id, payload)"
            )
        other = self._ordered.get(queue) if queue is not None else None
        if other is not None:
            raise DefinitionError(
                f"{name}: {queue!r} is the ordered queue of {other.name}, where plain jobs cannot go; "
                "work is put there by its push(id, payload)"
            )

    def find(self, name: str) -> Definition | None:
        """The definition under ``name``, which may be an alias, or None."""
        return self._by_name.get(name) or self._aliases.get(name)

    def get(self, name: str) -> Definition:
        """The definition under ``name``; UnknownJob says what is near and what to do."""
        found = self.find(name)
        if found is None:
            raise UnknownJob(
                f"no job is registered as {visible(shorten(name, 200))!r}{did_you_mean(name, self._by_name)}; "
                "is its module in App(imports=[…])?"
            )
        return found

    def mask(self, name: str, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments of the job ``name`` as people may see them: secret ones, where it is registered, are masked."""
        found = self.find(name)
        if found is None:
            return args, kwargs
        shown, named = found.signature.mask(args, kwargs)
        return shown, named or {}

    def fair_queues(self) -> dict[str, dict[str, int]]:
        """The queues that definitions make fair; for each the jobs whose tenant is an argument, and which one."""
        return fair_queues(self)

    def queues(self) -> list[str]:
        """Every queue that a definition names, those of ``more_queues``, and ``default``, sorted."""
        plain = (one.options.queue for one in self._by_name.values() if not _ordered_queues(one))
        return sorted({"default", *plain, *self._ordered, *self.more_queues})


def _ordered_queues(definition: Definition) -> tuple[str, ...]:
    """The queues of an ordered definition; none for a plain job."""
    queues: tuple[str, ...] = getattr(definition, "queues", ())
    return queues


def _place(function: Any) -> str:
    code = getattr(function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(function)


def _same_place(one: Any, other: Any) -> bool:
    """Whether two functions are the same source: a module that was reloaded defines its jobs again."""
    return _place(one) == _place(other)


def wire_name(function: Any) -> str:
    """``module.qualname``, by which the worker finds the function; DefinitionError when it could not."""
    name: str = function.__qualname__
    module: str = function.__module__
    if "<locals>" in name or "<lambda>" in name:
        raise DefinitionError(
            f"{module}.{name} is defined inside a function, where a worker cannot find it; move it to the top of its "
            "module, or give it a fixed name="
        )
    if module == "__main__":
        module = _main_module(name)
    return f"{module}.{name}"


def _main_module(function: str) -> str:
    """The name under which a worker can import the module that runs as ``__main__``."""
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return str(spec.name).removesuffix(".__main__")
    file = getattr(main, "__file__", None)
    if file is not None and Path(file).stem.isidentifier():
        return Path(file).stem
    raise DefinitionError(
        f"{function} is defined in an interactive session, which a worker cannot import; put it into a file, or give "
        "it a fixed name="
    )


def load_modules(patterns: Iterable[str]) -> None:
    """Import the modules that define jobs, ``"pkg.jobs"`` or ``"pkg.*.jobs"``."""
    for pattern in patterns:
        for module in _modules(pattern):
            importlib.import_module(module)


def _modules(pattern: str) -> list[str]:
    """The modules that ``pattern`` names: one, or with ``*`` for one package level, every match."""
    if "*" not in pattern:
        return [pattern]
    head, _, tail = pattern.partition(".*")
    package = importlib.import_module(head)
    found = []
    for name in sorted({child for folder in getattr(package, "__path__", []) for child in _children(Path(folder))}):
        module = f"{head}.{name}{tail}"
        if "*" in tail or not tail or _stands(package, name, tail):
            found += _modules(module)
    return found


def _children(folder: Path) -> list[str]:
    """The names of modules and packages in a package's folder."""
    plain = [file.stem for file in folder.glob("*.py") if file.stem != "__init__"]
    return plain + [file.parent.name for file in folder.glob("*/__init__.py")]


def _stands(package: Any, name: str, tail: str) -> bool:
    """Whether the module ``<package>.<name><tail>`` is there: not every package has a module of that name."""
    path = Path(name, *tail.strip(".").split("."))
    folders = [Path(folder) / path for folder in package.__path__]
    return any(one.with_suffix(".py").exists() or (one / "__init__.py").exists() for one in folders)


def _shown(limit: Limit) -> str:
    per = f", per={limit.seconds:g}" if limit.seconds else ""
    return f"{type(limit).__name__}({limit.n}{per})"
