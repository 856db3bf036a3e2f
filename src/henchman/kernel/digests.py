"""The bare digests: a fifth of the time that hashlib takes to load, and this is loaded with every program."""

from __future__ import annotations

try:  # private, and with CPython as it is
    from _sha1 import sha1  # type: ignore[import-not-found, unused-ignore]
except ImportError:
    from hashlib import sha1
try:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found, unused-ignore]  # of CPython 3.11
    except ImportError:
        from _sha2 import sha256  # type: ignore[import-not-found, no-redef, unused-ignore]  # of 3.12 and newer
except ImportError:
    from hashlib import sha256

__all__ = ["sha1", "sha256"]
