"""The demo's price service: a small HTTP server on the loopback interface that misbehaves on purpose.

Most requests are answered in a few milliseconds. For some products the first or second request fails: with a 503,
with a connection cut in mid-answer, or with an answer that trickles in so slowly that no socket time-out notices and
only the job's own ``timeout=`` helps. Which products, is decided by a hash of their SKU and the seed, so two runs
misbehave alike; a later request for the same product always succeeds, so retries heal everything.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import zlib
from collections import Counter
from http.client import responses
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from henchman.demo.products import Product

__all__ = ["PriceError", "PriceService", "ask", "hang_up", "misbehaviour", "retail"]

SEED = 7
DELAY = 0.004  # seconds that a good answer takes
TRICKLE = 0.05  # seconds between two bytes of a stalled answer
STALL = 30.0  # seconds after which a stalled answer is given up by the service
SOCKET_TIMEOUT = 5.0
EURO = {"EUR": 100, "USD": 109, "GBP": 85, "CHF": 95, "PLN": 428, "CZK": 2510, "SEK": 1125, "JPY": 16200}


class PriceError(Exception):
    """The price service did not answer, or answered with an error; worth another try."""


def retail(sku: str, cost: int, currency: str) -> int:
    """What the shop asks for a product, in euro cents: its cost in euro, and a margin of 20 to 60 %."""
    margin = 120 + zlib.crc32(sku.encode()) % 41
    return max(1, cost * margin // EURO[currency])


def misbehaviour(sku: str, seed: int = SEED) -> tuple[str, ...]:
    """What the service does to the first requests for ``sku``: "503", "drop" or "stall" each; then it behaves."""
    draw = zlib.crc32(f"{seed}:{sku}".encode()) % 1000
    if draw < 30:
        return ("503",)
    if draw < 45:
        return ("drop",)
    if draw < 48:
        return ("stall",)
    if draw < 56:
        return ("503", "503")
    if draw < 60:
        return ("drop", "503")
    return ()


# ---- the service ---------------------------------------------------------------------------------------------------


class PriceService:
    """The service, in threads of this process; ``url`` is where it listens. Use it as a context manager."""

    def __init__(self, seed: int = SEED) -> None:
        self.seed = seed
        self.stopping = threading.Event()
        self.troubles: Counter[str] = Counter()
        self._asked: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._server = _Server(self)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="demo-prices", daemon=True)

    def __enter__(self) -> PriceService:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def next_act(self, sku: str) -> str:
        """What to do with this request for ``sku``: one of ``misbehaviour``'s words, or "answer"."""
        with self._lock:
            turn = self._asked[sku]
            self._asked[sku] += 1
            acts = misbehaviour(sku, self.seed)
            act = acts[turn] if turn < len(acts) else "answer"
            if act != "answer":
                self.troubles[act] += 1
            return act


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, service: PriceService) -> None:
        self.service = service
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is its own business."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def do_GET(self) -> None:
        """``/price?sku=…&cost=…&currency=…`` → ``{"sku": …, "price": euro cents}``."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(self.path).query).items()}
        try:
            sku, cost, currency = query["sku"], int(query["cost"]), query["currency"]
            price = retail(sku, cost, currency)
        except (KeyError, ValueError):
            return self._send(400, {"error": "sku, cost and currency are needed"})
        match self.server.service.next_act(sku):
            case "503":
                return self._send(503, {"error": "busy, try again"})
            case "drop":
                return self._drop()
            case "stall":
                return self._trickle()
        self.server.service.stopping.wait(DELAY)
        return self._send(200, {"sku": sku, "price": price})

    def _send(self, status: int, body: dict[str, object]) -> None:
        text = json.dumps(body).encode()
        head = f"HTTP/1.1 {status} {responses[status]}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}"
        self.wfile.write(head.encode() + b"\r\n\r\n" + text)  # one write, one packet

    def _drop(self) -> None:
        self.wfile.write(b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 64\r\n\r\n{"sku": "')
        self.close_connection = True

    def _trickle(self) -> None:
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Patience: ")
        for _ in range(int(STALL / TRICKLE)):
            self.wfile.write(b".")
            if self.server.service.stopping.wait(TRICKLE):
                break
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the demo's screen is not an access log."""


# ---- the client ----------------------------------------------------------------------------------------------------

_local = threading.local()  # each thread of a worker keeps its connection


def ask(url: str, product: Product) -> int:
    """Today's price of ``product`` in euro cents; PriceError when the service does not give one."""
    path = "/price?" + urlencode({"sku": product.sku, "cost": product.cost, "currency": product.currency})
    connection = _connection(url)
    whole = False
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        whole = True
    except (OSError, http.client.HTTPException) as error:
        raise PriceError("price service broke off") from error
    finally:
        if not whole:  # also when the job's timeout strikes: what is left in the connection is of no use
            connection.close()
    if answer.status != 200:
        raise PriceError(f"price service answered {answer.status}")
    try:
        said = json.loads(body)
    except ValueError:
        raise PriceError("price service answered nonsense") from None
    if said.get("sku") != product.sku or not isinstance(said.get("price"), int):
        raise PriceError(f"price service answered something else: {said!r}")
    return int(said["price"])


def hang_up() -> None:
    """Close this thread's connection; the next ``ask`` opens another."""
    kept: http.client.HTTPConnection | None = getattr(_local, "connection", None)
    if kept is not None:
        kept.close()


def _connection(url: str) -> http.client.HTTPConnection:
    kept: http.client.HTTPConnection | None = getattr(_local, "connection", None)
    if kept is None or _local.url != url:
        kept = _NoDelay(urlsplit(url).netloc, timeout=SOCKET_TIMEOUT)
        _local.connection, _local.url = kept, url
    return kept


class _NoDelay(http.client.HTTPConnection):
    def connect(self) -> None:
        """Connect; small requests leave at once."""
        super().connect()
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
