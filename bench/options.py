"""The options that every bench beside the long form understands."""

from __future__ import annotations

import argparse

__all__ = ["arguments"]


def arguments(text: str) -> argparse.ArgumentParser:
    """A parser with what every bench understands."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print one line of JSON at the end")
    parser.add_argument("--check", action="store_true", help="exit with status 1 when a figure misses its bar")
    return parser
