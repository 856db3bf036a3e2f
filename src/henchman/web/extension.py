"""What a package needs to add something to the console: see ``docs/console.md``, Extensions."""

from __future__ import annotations

from henchman.console.extensions import Extension, ExtensionFile, Fact, Trouble

__all__ = ["Extension", "ExtensionFile", "Fact", "Trouble"]
