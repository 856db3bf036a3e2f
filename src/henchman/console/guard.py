"""Who may look and who may act: passwords, hooks, the address, tokens against forged requests, and the headers of every
answer.

A request that changes something passes three gates: what the browser says of its origin (``Sec-Fetch-Site``), the
``Origin`` itself, and a token that only our own pages hold. Requests that only read change nothing.
"""

from __future__ import annotations

import hmac
import inspect
import ipaddress
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from hashlib import sha256
from math import ceil
from typing import Any, Final, Literal, NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

__all__ = [
    "HEADERS",
    "Access",
    "Authorize",
    "Denied",
    "Role",
    "Visitor",
    "address_of",
    "forged",
    "hardened",
    "is_local",
    "with_session",
]

Role = Literal["look", "act"]
Authorize = Callable[[Request], "Role | Awaitable[Role | None] | None"]

COOKIE: Final = "henchman_console"
SESSION: Final = 12 * 3600  # seconds
TRIES: Final = 5  # wrong passwords of one address a minute
ACTS: Final = 60  # that one visitor does a minute; an operation on many jobs is one
_HOUR: Final = 3600
_FORWARDED: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-real-ip")
_HOST: Final = re.compile(r"([A-Za-z0-9._-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\])(:[0-9]{1,5})?")

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; object-src 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types console"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class Denied(Exception):
    """The answer to a request that may not do what it asks: a status, and why."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class LastMinute:
    """How often each name did something within the last minute, up to ``most`` times."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: dict[str, list[float]] = {}

    def wait(self, name: str) -> float:
        """Seconds until it is less often than ``most`` again; 0: it is."""
        now = time.monotonic()
        recent = [one for one in self._times.get(name, ()) if now - one < 60]
        return recent[0] + 60 - now if len(recent) >= self._most else 0.0

    def note(self, name: str) -> None:
        """It was done just now."""
        now = time.monotonic()
        if len(self._times) > 10_000:
            self._times.clear()
        self._times[name] = [*self._times.get(name, ()), now][-self._most :]


class Visitor(NamedTuple):
    """Who asks. ``role``: None must log in; ``session``: the text of the cookie, ``fresh``: it has to be set;
    ``bearer``: a password came with the request, which no page of another site can send."""

    role: Role | None
    session: str
    fresh: bool
    name: str
    bearer: bool = False


def is_local(request: Request) -> bool:
    """Whether a request comes from this machine, to a name of this machine: pages elsewhere can reach no other one.

    What proxies tell of whom they ask for can only close it: all of that must be this machine, too."""
    headers = request.headers
    told = [name for one in _FORWARDED for value in headers.getlist(one) for name in value.split(",")]
    names = [host_of(request), *told]
    return _is_loopback(address_of(request)) and all(map(_is_loopback, map(_without_port, names)))


def host_of(request: Request) -> str:
    """What the request calls us, with the port; empty: nothing that could be a host, whatever a library makes of it."""
    given = request.headers.getlist("host")
    return given[0] if len(given) == 1 and _HOST.fullmatch(given[0]) else ""


def _without_port(host: str) -> str:
    """``127.0.0.1`` of ``127.0.0.1:7080``, ``::1`` of ``[::1]:7080``."""
    name, _, port = host.strip().rpartition(":")
    bare = name if port.isdigit() and (name.endswith("]") or ":" not in name) else host.strip()
    return bare.removeprefix("[").removesuffix("]").lower()


def address_of(request: Request) -> str:
    """Where a request comes from; "?": nobody says."""
    if request.client:
        return request.client.host
    environ = request.scope.get("wsgi_environ", {})  # of a WSGI server that tells no port: a2wsgi passes on neither
    told: str = environ.get("REMOTE_ADDR", "")
    return told or "?"


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _bearer(request: Request) -> str:
    """The password that came with a request; empty: none."""
    scheme, _, password = request.headers.get("authorization", "").partition(" ")
    return password.strip() if scheme.lower() == "bearer" else ""


class Access:
    """Who may look and act: by ``password`` (acts), ``look_password`` (only looks), a hook, or from this machine alone.

    ``authorize(request)`` says "act", "look" or None, and may be async. ``secret``: what signs sessions and tokens;
    processes that serve one console must share it.
    """

    def __init__(
        self,
        password: str | None = None,
        look_password: str | None = None,
        authorize: Authorize | None = None,
        secret: str | None = None,
        *,
        read_only: bool = False,
    ) -> None:
        every: tuple[tuple[Role, str | None], ...] = (("act", password), ("look", look_password))
        self._passwords = {role: given for role, given in every if given is not None}
        self._authorize = authorize
        self.read_only = read_only
        basis = secret or "\n".join(self._passwords.values()) or secrets.token_hex(32)
        self._key = sha256(b"henchman console\n" + basis.encode()).digest()
        self._wrong = LastMinute(TRIES)
        self._acts = LastMinute(ACTS)

    @property
    def asks_password(self) -> bool:
        """Whether people log in here."""
        return bool(self._passwords)

    @property
    def is_open(self) -> bool:
        """Whether anything but the address says who may come in."""
        return bool(self._passwords) or self._authorize is not None

    async def visitor(self, request: Request) -> Visitor:
        """Who sends this request."""
        session = request.cookies.get(COOKIE, "")
        address = address_of(request)
        name = getattr(request.scope.get("user"), "display_name", "") or address
        role: Role | None
        password = _bearer(request) if self._passwords else ""
        if password:
            role, fresh = self._role_with(password, address), False
        elif self._passwords:
            role, fresh = self._role_of(session), False
        else:
            fresh = not 32 <= len(session) <= 64 or not session.isalnum()
            session = secrets.token_hex(16) if fresh else session
            role = await self._asked(request) if self._authorize else "act" if is_local(request) else None
        if role == "act" and self.read_only:
            role = "look"
        return Visitor(role, session, fresh, name, bool(password))

    async def _asked(self, request: Request) -> Role | None:
        hook: Any = self._authorize
        answer = hook(request) if inspect.iscoroutinefunction(hook) else await run_in_threadpool(hook, request)
        if inspect.isawaitable(answer):
            answer = await answer
        return answer if answer in ("look", "act") else None

    def must(self, role: Role, visitor: Visitor) -> None:
        """Denied unless the visitor has this role, and acts not too often; an act is counted."""
        if visitor.role is None and self.asks_password:
            raise Denied(401, "log in first")
        if visitor.role is None and not self.is_open:
            raise Denied(
                403,
                "this console answers only this machine, under a name of this machine: give it a password, or "
                "authorize=, to open it to others",
            )
        if visitor.role not in ("act", role):
            raise Denied(
                403, "you may look here, and not act" if visitor.role == "look" else "you may not come in here"
            )
        if role == "act":
            self._pace(visitor.name if visitor.bearer else f"{visitor.name} {visitor.session}")

    def _pace(self, name: str) -> None:
        if wait := self._acts.wait(name):
            raise Denied(
                429,
                f"that were {ACTS} acts within a minute: go on in {ceil(wait)} s, or act on all that a search finds",
            )
        self._acts.note(name)

    # ---- passwords and sessions

    def log_in(self, password: str, address: str) -> str | None:
        """A session for whoever knows a password; None: it is none, or this address tried too often."""
        found = self._role_with(password, address)
        if found is None:
            return None
        body = f"{found}.{int(time.time()) + SESSION}.{secrets.token_hex(8)}"
        return f"{body}.{self._signed('session', body)}"

    def _role_with(self, password: str, address: str) -> Role | None:
        """What whoever knows a password may do; None: it is none, or this address tried too often."""
        found: Role | None = None
        for role, right in self._passwords.items():  # all of them, so that the time says nothing
            if hmac.compare_digest(sha256(password.encode()).digest(), sha256(right.encode()).digest()):
                found = found or role
        if found is None or self._wrong.wait(address):
            self._wrong.note(address)
            return None
        return found

    def _role_of(self, session: str) -> Role | None:
        body, _, mac = session.rpartition(".")
        if not hmac.compare_digest(mac.encode(), self._signed("session", body).encode()):
            return None
        name, until, _ = body.split(".")
        return next((role for role in self._passwords if role == name and int(until) > time.time()), None)

    def _signed(self, what: str, text: str) -> str:
        return hmac.digest(self._key, f"{what}\n{text}".encode(), "sha256").hex()

    # ---- tokens against forged requests

    def seal(self, text: str) -> str:
        """By what we know a sentence of ours again when it comes back in an address."""
        return self._signed("said", text)[:20]

    def token(self, session: str) -> str:
        """What a form of ours sends along; it holds for twelve hours."""
        return self._signed("form", f"{session}\n{int(time.time()) // _HOUR}")

    def holds(self, token: str, session: str) -> bool:
        """Whether a form of ours sent this."""
        now = int(time.time()) // _HOUR
        every = [self._signed("form", f"{session}\n{now - back}") for back in range(12)]
        return any(hmac.compare_digest(token.encode(), one.encode()) for one in every)


def hardened(answer: Response) -> Response:
    """The answer with what every one of ours forbids to browsers, unless it says so itself."""
    for name, value in HEADERS.items():
        answer.headers.setdefault(name, value)
    return answer


def with_session(answer: Response, request: Request, prefix: str, session: str) -> Response:
    """The answer with the cookie of a session for the console at ``prefix``; "": the session ends."""
    answer.set_cookie(
        COOKIE,
        session,
        max_age=SESSION if session else 0,
        path=f"{prefix}/",
        secure=request.scope.get("scheme") == "https",
        httponly=True,
        samesite="lax",
    )
    return answer


def forged(request: Request) -> str:
    """Why a request that changes something does not come from a page of this site, as far as its headers tell; empty
    when it may."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return (
            "" if site == "same-origin" else f"the browser says that it comes from elsewhere (Sec-Fetch-Site: {site})"
        )
    origin = request.headers.get("origin")
    if origin is None or origin == "null":
        return "it does not say where it comes from (no Origin header): does a proxy drop it?"
    host = host_of(request).lower()  # not the scheme: a proxy that ends TLS does not always say so
    if host and origin.lower() in (f"http://{host}", f"https://{host}"):
        return ""
    return "its Origin is not this host: does a proxy change the Host header?"
