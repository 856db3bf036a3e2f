"""Modules of the standard library that not every process needs: without them a worker starts smaller and sooner."""

from __future__ import annotations

from typing import Any, Literal

__all__ = ["load"]


def load(name: Literal["asyncio", "difflib", "unicodedata"]) -> Any:
    """The module: asyncio is for coroutines, difflib for misspelt words, unicodedata for what is not ASCII."""
    if name == "asyncio":
        import asyncio as module
    elif name == "difflib":
        import difflib as module  # type: ignore[no-redef]
    else:
        import unicodedata as module  # type: ignore[no-redef]
    return module
