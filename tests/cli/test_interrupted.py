"""Ctrl-C while a command is loaded ends it quietly; from then on it is the command's."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from henchman.cli.main import henchman

PROGRAM = """
import os, signal, sys
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder())
from henchman_command import main
main()
"""


def run(module: str, *, ignored: bool = False) -> subprocess.CompletedProcess[str]:
    """``henchman completion bash``, interrupted when it imports ``module``."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(module=module), "completion", "bash"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        preexec_fn=(lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if ignored else None,
    )


@pytest.mark.parametrize(
    "module", ["henchman", "henchman.client.push", "click", "henchman.cli.main", "henchman.cli.project"]
)
def test_an_interrupted_import_says_nothing(module: str) -> None:
    ended = run(module)
    assert (ended.returncode, ended.stdout, ended.stderr) == (-signal.SIGINT, "", ""), "a shell calls that 130"


def test_who_is_not_to_be_interrupted_is_not() -> None:
    ended = run("henchman.cli.main", ignored=True)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "henchman" in ended.stdout


def test_a_loaded_command_hears_of_it() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        assert CliRunner().invoke(henchman, ["completion", "bash"]).exit_code == 0
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
