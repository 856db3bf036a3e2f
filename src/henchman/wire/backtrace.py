"""``error_backtrace``: lines as JSON, deflated, in Base64 (wire format, section 6.5)."""

from __future__ import annotations

import base64
import binascii
import traceback
import zlib
from collections.abc import Sequence
from typing import Any

import msgspec

from henchman.wire import jsontext

__all__ = ["compress", "expand", "lines_of"]

_MOST_LINES = 1_000
_MOST_BYTES = 1024 * 1024
"""Of the text inside: a few kilobytes in Redis must not become gigabytes here."""


def compress(lines: Sequence[str]) -> str:
    """The form that every Sidekiq reads: strict Base64, without line breaks."""
    text = jsontext.encode([line.encode("utf-8", "replace").decode() for line in lines])
    return base64.b64encode(zlib.compress(text)).decode()


def expand(text: Any) -> list[str] | None:
    """The lines out of strict or MIME Base64 or a plain array, at most 1,000; None for what is no backtrace."""
    if isinstance(text, list):
        return [str(line) for line in text[:_MOST_LINES]]
    if not isinstance(text, str) or not text:
        return None
    try:
        inflater = zlib.decompressobj()
        raw = inflater.decompress(binascii.a2b_base64(text.encode()), _MOST_BYTES)
        if not inflater.eof:
            return None
        lines = jsontext.loads(raw)
    except (binascii.Error, zlib.error, msgspec.DecodeError, ValueError, RecursionError):
        return None
    return [str(line) for line in lines[:_MOST_LINES]] if isinstance(lines, list) else None


def lines_of(error: BaseException, limit: int | None = None) -> list[str]:
    """``path:line:in function`` of each frame, newest first; the first ``limit`` of them, at most 1,000."""
    newest_first = list(traceback.walk_tb(error.__traceback__))[::-1]
    most = _MOST_LINES if limit is None else max(0, min(limit, _MOST_LINES))
    return [f"{frame.f_code.co_filename}:{line}:in {frame.f_code.co_name}" for frame, line in newest_first[:most]]
