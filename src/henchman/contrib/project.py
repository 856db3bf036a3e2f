"""The settings of Henchman in the configuration of a framework's project, under the name ``HENCHMAN``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from henchman.config import KEYS
from henchman.errors import ConfigError
from henchman.kernel.text import as_shown, did_you_mean

__all__ = ["checked_settings"]


def checked_settings(found: Any) -> dict[str, Any]:
    """``found`` as it stands there; ConfigError when it is no dict, or names what is no setting."""
    if not isinstance(found, Mapping):
        raise ConfigError(f"HENCHMAN = {as_shown(found, 200)}: give a dict of settings, such as {{}}")
    for name in found:
        if name not in KEYS:
            near = did_you_mean(str(name).lower(), tuple(KEYS))
            raise ConfigError(f"HENCHMAN: there is no setting {name!r}{near}")
    return dict(found)
