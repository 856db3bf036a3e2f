"""A group of commands whose first word may also name a thing: then it is shown."""

from __future__ import annotations

import click

__all__ = ["ShowGroup"]

_WITH_VALUE = {"-A", "--app", "--redis", "--namespace", "--folder"}


class ShowGroup(click.Group):
    """``henchman ordered NAME`` is ``henchman ordered show NAME``, whatever options stand before the name."""

    def parse_args(self, context: click.Context, args: list[str]) -> list[str]:
        words = iter(args)
        for word in words:
            if word in _WITH_VALUE:
                next(words, None)
            elif word in self.commands or word in context.help_option_names:
                break
            elif not word.startswith("-"):
                args = ["show", *args]
                break
        else:
            args = ["show", *args]
        return super().parse_args(context, args)
