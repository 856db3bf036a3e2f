"""From ``pkg.mod:app`` to the app."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import Any

from henchman.app import App
from henchman.errors import ConfigError
from henchman.kernel.text import described, did_you_mean


def load_app(target: str) -> App:
    """The app at ``pkg.mod:app`` (``:app`` may be left out).

    ConfigError says what is missing and where it looked, or what the user's code raised, which is the error's cause.
    """
    try:
        return _imported(target)
    except (ConfigError, KeyboardInterrupt):
        raise
    except BaseException as error:  # the module is the user's: whatever it raises, sys.exit() too
        raise ConfigError(f"{target} cannot be imported: {described(error)}") from error


def _imported(target: str) -> App:
    module_name, _, attribute = target.partition(":")
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise ConfigError(f"{target!r} names no module{_instead(module_name, attribute)}")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name + ".").startswith(error.name + "."):
            raise  # the module is there; it imports something that is not
        instead = _instead(module_name, attribute)
        raise ConfigError(f"there is no module {module_name!r} here ({Path.cwd()}){instead}") from None
    found: Any = module
    for part in (attribute or "app").split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{module_name} has no {part!r}{did_you_mean(part, dir(found))}: give pkg.mod:app")
        found = getattr(found, part)
    if not isinstance(found, App):
        raise ConfigError(f"{target} is {type(found).__name__}, not an App")
    found.load_imports()
    return found


def their_traceback(error: BaseException) -> str:
    """The part of a traceback that is the user's, with the error."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [
        one for one in frames if not one.filename.startswith("<frozen ") and Path(one.filename).parent not in _OURS
    ]
    last = traceback.format_exception_only(error)
    return "".join(
        [*(["Traceback (most recent call last):\n"] if theirs else []), *traceback.format_list(theirs), *last]
    )


def _instead(module_name: str, attribute: str) -> str:
    """The way out: what a path (``pkg/mod.py``) or a dot in place of the colon (``mod.app``) perhaps meant."""
    name = module_name.removeprefix("./").removesuffix(".py").replace("/", ".")
    if name == module_name and not attribute:
        name, _, attribute = module_name.rpartition(".")
    places = Path(*name.split(".")) if name and not name.startswith(".") else None
    if places is None or not (places.with_suffix(".py").is_file() or (places / "__init__.py").is_file()):
        return ": give pkg.mod:app"
    return f"; did you mean {name}:{attribute or 'app'}?"


_OURS = frozenset({Path(__file__).parent, Path(str(importlib.__file__)).parent})
