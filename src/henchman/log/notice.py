"""A line for people who have not set up logging: Python writes warnings to standard error then."""

from __future__ import annotations

import logging

__all__ = ["notice"]


def notice(text: str, *facts: object) -> None:
    """One warning line from the logger ``henchman``."""
    logging.getLogger("henchman").warning(text, *facts)
