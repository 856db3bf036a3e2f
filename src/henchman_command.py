"""Where the command ``henchman`` begins: a module of its own, outside the package, whose import takes a while.

Until the command is loaded Ctrl-C ends the process quietly (the shell sees status 130); then it is the command's.
"""

import signal

__all__ = ["main"]


def main() -> None:
    """The console script."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else somebody ignores it: nohup, a job's shell
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from henchman.cli.main import main as command

    command()
