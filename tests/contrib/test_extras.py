"""Each integration is an extra: Henchman alone imports none of them, and one whose library is missing says which."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from support.processes import clean_environ

EXTRAS = {
    "fastapi": ("fastapi", "starlette"),  # a bare installation lacks both
    "flask": ("flask",),
    "otel": ("opentelemetry",),
    "sentry": ("sentry_sdk",),
}


def python(code: str) -> str:
    environ = clean_environ() | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, timeout=60, check=True
    ).stdout


@pytest.mark.parametrize("extra", EXTRAS)
def test_what_is_missing_names_the_extra(extra: str) -> None:
    said = python(
        f"import sys; sys.modules.update(dict.fromkeys({EXTRAS[extra]}))\n"
        f"try: import henchman.contrib.{extra}\n"
        "except ImportError as error: print(error)"
    )
    assert said.startswith(f"henchman.contrib.{extra} needs "), said
    assert f"pip install 'henchman[{extra}]'" in said


def test_henchman_alone_imports_none_of_them() -> None:
    libraries = {one for many in EXTRAS.values() for one in many} - {"opentelemetry"}  # redis-py imports it too
    look = f"import sys, henchman; app = henchman.App(); print(*[one for one in {libraries} if one in sys.modules])"
    assert python(look) == "\n"
