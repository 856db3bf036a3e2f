"""Several consoles behind one address, each with a server, passwords and rights of its own."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from henchman.console.guard import hardened
from henchman.console.render import NAME, SHELF, below
from henchman.console.site import Console
from henchman.errors import ConfigError

__all__ = ["Consoles"]

_MAIN: Final = "main"


class Consoles:
    """An ASGI application: the ``first`` console is below ``/@main/``, each ``beside`` it below ``/@name/``, and each
    shows the names of the others. Who is let in by one is not known to another. Any other address leads to the first.
    ConfigError for a name that cannot stand in an address, or is taken."""

    def __init__(self, first: Console, beside: Mapping[str, Console]) -> None:
        for name in beside:
            if not NAME.fullmatch(name) or name == _MAIN:
                raise ConfigError(
                    f"{name!r} cannot name a console: give 1 to 40 letters, digits, dots, _ or -, and not {_MAIN!r}, "
                    "which is the first one"
                )
        self._named = {_MAIN: first, **beside}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the lifespan of the server."""
        if scope["type"] != "http":
            await self._named[_MAIN](scope, receive, send)
            return
        prefix, path = below(scope)
        at, _, rest = path.removeprefix("/").partition("/")
        name = at.removeprefix("@")
        if at == name or name not in self._named:
            answer = await self._elsewhere(Request(scope), prefix, path)
            await hardened(answer)(scope, receive, send)
            return
        root, places = f"{prefix}/{at}", {other: f"{prefix}/@{other}/" for other in self._named}
        inner = {**scope, "root_path": root, "path": f"{root}/{rest}", SHELF: (name, places)}
        await self._named[name](inner, receive, send)

    async def _elsewhere(self, request: Request, prefix: str, path: str) -> Response:
        """The health of all; what is read otherwise is read in the first."""
        if path == "/healthz":
            well = await asyncio.gather(*(one.is_well() for one in self._named.values()))
            found = dict(zip(self._named, well, strict=True))
            return JSONResponse({"ok": all(found.values()), "consoles": found}, 200 if all(found.values()) else 503)
        if path.startswith("/@") or request.method not in ("GET", "HEAD"):
            return PlainTextResponse(f"no such console: there are {', '.join(f'/@{one}/' for one in self._named)}", 404)
        query = request.scope["query_string"].decode("latin-1")
        place = quote(f"{prefix}/@{_MAIN}{path}", safe="/@~") + (f"?{query}" if query else "")
        return RedirectResponse(place, 303)

    def serve(self, listening: socket.socket, root_path: str = "") -> None:
        """Serve on a socket that listens, until a signal says stop. ``root_path``: where a proxy serves it."""
        first, *others = self._named.values()
        for one in others:
            one.carry_on()
        first.serve(listening, root_path, site=self)
