"""Settings, and where each came from."""

from henchman.config.settings import KEYS, UNSET, Config, Setting, Unset

__all__ = ["KEYS", "UNSET", "Config", "Setting", "Unset"]
