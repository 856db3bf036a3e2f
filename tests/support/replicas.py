"""A master, its replicas and their sentinels for tests: real servers on TCP ports of this host, gone with the test."""

from __future__ import annotations

import contextlib
import itertools
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

from redis import ConnectionError as RedisConnectionError
from redis import Redis

from henchman.store.call import command
from support.runners import Runner
from support.server import DIE_WITH_PARENT, PrivateServer, server_binary
from support.worker import until

__all__ = ["Fleet", "Name", "Node", "all_at_once", "fleet", "free_port", "nodes"]

MASTER = "mymaster"


#: below those that the system gives to outgoing connections, and others in each process that runs tests
_ports = itertools.count(10_000 + os.getpid() % 100 * 200)
_reserved: list[socket.socket] = []


def free_port() -> int:
    """A TCP port of this host that nobody uses now, nor soon: it is still to be listened on."""
    for port in _ports:
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            _reserve(port)
            return port
    raise AssertionError("no port is free")


def _reserve(port: int) -> None:
    """No other process that runs tests may have it, while this one lives; OSError when one has."""
    if sys.platform == "linux":
        mark = socket.socket(socket.AF_UNIX)
        _reserved.append(mark)
        mark.bind(f"\0henchman-tests-port-{port}")


class Node(PrivateServer):
    """A server that also listens on a TCP port and can follow another."""

    def __init__(self, folder: Path, *args: str) -> None:
        folder.mkdir(parents=True)
        self.port = free_port()
        quick = ("--repl-diskless-sync-delay", "0", "--repl-ping-replica-period", "1")
        super().__init__("--port", str(self.port), *quick, *args, folder=folder)
        self.tcp_url = f"redis://127.0.0.1:{self.port}/0"

    def follow(self, master: Node) -> None:
        """Become a replica of ``master``; not waited for."""
        assert self.ask("REPLICAOF", "127.0.0.1", str(master.port)).startswith("+OK")

    def in_step(self) -> bool:
        """Whether it is a replica that has what its master has."""
        return "master_link_status:up" in self.ask("INFO", "replication")

    def promote(self) -> None:
        """Become a master."""
        assert self.ask("REPLICAOF", "NO", "ONE").startswith("+OK")

    def client(self) -> Redis:
        """A plain client of it, for looking."""
        return Redis.from_url(self.url, protocol=2)


@contextmanager
def nodes(folder: Path, count: int, *args: str) -> Iterator[list[Node]]:
    """``count`` servers; the first is the master of the others, which are in step."""
    with ExitStack() as stack:
        made = [Node(folder / f"n{number}", *args) for number in range(count)]
        for one in made:
            stack.callback(one.stop)
            one.start()
        for one in made[1:]:
            one.follow(made[0])
        for one in made[1:]:
            until(one.in_step, "the replica is in step")
        yield made


def all_at_once(one: Runner, count: int, *masters: Node) -> None:
    """So many calls that wait for the server, each on a connection of its own, before the first is answered."""

    def waiting() -> int:
        told = (node.ask("INFO", "clients") for node in masters)
        return sum(int(line.partition(":")[2]) for text in told for line in text.splitlines() if "blocked_cl" in line)

    with ThreadPoolExecutor(1) as aside:
        calls = aside.submit(one.run_all, command("BLPOP", "none", 50), count)
        until(lambda: waiting() == count, "all wait")
        for node in masters:
            node.ask("RPUSH", "none", *map(str, range(count)))
        calls.result(60)
    for node in masters:
        node.ask("DEL", "none")


class Fleet:
    """Three sentinels over a master and its replicas. ``url`` is how users name all of it."""

    def __init__(self, folder: Path, members: list[Node]) -> None:
        self.nodes = members
        self.ports = [free_port() for _ in range(3)]
        self._folder = folder
        self._sentinels: list[subprocess.Popen[bytes]] = []
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        self.url = f"sentinel://{hosts}/{MASTER}"

    def start(self) -> None:
        """Start the sentinels, and wait until they know each other and the replicas."""
        for number, port in enumerate(self.ports):
            folder = self._folder / f"sentinel{number}"
            folder.mkdir(parents=True)
            conf = folder / "sentinel.conf"
            conf.write_text(
                f"port {port}\nbind 127.0.0.1\ndir {folder}\n"
                f"sentinel monitor {MASTER} 127.0.0.1 {self.nodes[0].port} 2\n"
                f"sentinel down-after-milliseconds {MASTER} 2000\nsentinel failover-timeout {MASTER} 3000\n"
            )
            before = [sys.executable, "-ISc", DIE_WITH_PARENT] if sys.platform == "linux" else []
            with (folder / "log").open("ab") as out:
                self._sentinels.append(
                    subprocess.Popen(
                        [*before, server_binary(), str(conf), "--sentinel"],
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=out,
                        start_new_session=True,
                    )
                )
        until(self._complete, "the sentinels know all")

    def _complete(self) -> bool:
        for port in self.ports:
            try:
                with Redis(port=port) as sentinel:
                    seen = sentinel.sentinel_masters()[MASTER]  # type: ignore[index,call-overload]
            except (RedisConnectionError, KeyError):  # not up yet
                return False
            if seen["num-slaves"] < len(self.nodes) - 1 or seen["num-other-sentinels"] < len(self.ports) - 1:
                return False
        return True

    def kill_sentinel(self, number: int) -> None:
        """kill -9 of one sentinel."""
        self._sentinels[number].kill()
        self._sentinels[number].wait(30)

    @property
    def master(self) -> Node:
        """Who is the master by what the servers themselves say: the one that others, or the sentinels, follow now."""
        with Redis(port=self.ports[-1]) as sentinel:
            port = sentinel.sentinel_masters()[MASTER]["port"]  # type: ignore[index,call-overload]
        return next(one for one in self.nodes if one.port == port)

    def failed_over(self, old: Node) -> Node:
        """Wait until another one than ``old`` is the master, by its own word; that one."""

        def found() -> Node | None:
            now = self.master
            return now if now is not old and "role:master" in now.ask("INFO", "replication") else None

        node = until(found, "another one was promoted")
        assert node is not None
        return node

    def stop(self) -> None:
        """End the sentinels."""
        for one in self._sentinels:
            one.kill()
            one.wait(30)


@contextmanager
def fleet(folder: Path, replicas: int = 1, *args: str) -> Iterator[Fleet]:
    """A master with replicas and three sentinels."""
    with nodes(folder, replicas + 1, *args) as members:
        made = Fleet(folder, members)
        try:
            made.start()
            yield made
        finally:
            made.stop()


class _Pair:
    """One connection through a ``Name``: both its ends. A mute one stays open and carries nothing."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.ends = (client, server)
        self.mute = False

    def pump(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not self.mute:
                    sink.sendall(data)
        if not self.mute:
            self.cut()

    def cut(self) -> None:
        for one in self.ends:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class Name:
    """A TCP address that leads to one server now and to another later, as a DNS name or a virtual IP does."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._pairs: list[_Pair] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]

    def __enter__(self) -> Name:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()
        for one in self._threads:
            one.join(10)
        for pair in self._pairs:
            for end in pair.ends:
                end.close()

    def move(self, port: int) -> None:
        """From now on new connections lead to ``port``; those that are open stay where they are."""
        self._to = port

    def cut(self) -> None:
        """Break every open connection."""
        for pair in list(self._pairs):
            pair.cut()

    def lose_host(self) -> None:
        """What is open stays open and carries nothing any more, as when a host loses its power."""
        for pair in list(self._pairs):
            pair.mute = True

    def mute(self, clients: Container[str]) -> None:
        """As ``lose_host``, for what the server knows as these clients alone."""
        for pair in list(self._pairs):
            host, port = pair.ends[1].getsockname()
            pair.mute = pair.mute or f"{host}:{port}" in clients

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._to), 5)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            pair = _Pair(client, server)
            self._pairs.append(pair)
            for source, sink in (pair.ends, pair.ends[::-1]):
                thread = threading.Thread(target=pair.pump, args=[source, sink], daemon=True)
                self._threads.append(thread)
                thread.start()
