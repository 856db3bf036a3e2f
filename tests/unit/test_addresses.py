"""No password of an address is shown, however wrong the address is and wherever it comes from."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from henchman.config import Config
from henchman.errors import ConfigError, HenchmanError
from henchman.history.database import Database
from henchman.kernel.clock import ServerClock
from henchman.kernel.text import mask_url, mask_urls
from henchman.store.connection import Connections, check_url
from henchman.store.leases import ask_time

PARTS = ("s3kret", "pa55word")  # what may not be seen; where a character divides the password, neither of its halves

WRONG = [
    "redis://:s3kret@",
    "redis://:s3kret",
    "redis://joe:s3kret",
    "redis://s3kret@localhost:1",
    "redis://s3kret:@localhost:1",
    "redis://:s3kret/pa55word@localhost:1",
    "redis://:s3kret#pa55word@localhost:1",
    "redis://:s3kret?pa55word@localhost:1",
    "redis://:s3kret?pa55word=1@localhost:1",
    "redis://:s3kret@pa55word@localhost:1",
    "redis://s3kret/pa55word@localhost:1",
    "redis://s3kret#pa55word@localhost:1",
    "redis://s3kret?pa55word@localhost:1",
    "redis://:s3kret:pa55word@localhost:x",
    "redis://:s3kret@localhost:x",
    "redis://:s3kret@[::1",
    "redis://localhost:1/0?password=s3kret",
    "redis://localhost:1/0?pasword=s3kret",
    "redis://localhost:1/0?token=s3kret",
    "redis://localhost:1/0?password=s3kret&no_such_option=pa55word",
    "redis://localhost:1/0?db=x&password=s3kret",
    "redis://localhost:1#s3kret",
    "rediss://:s3kret/pa55word@localhost:1",
    "sentinel://:s3kret/pa55word@localhost/my",
    "sentinel://:s3kret",
    "sentinel://:s3kret@localhost",
    "sentinel://localhost/my?sentinel_password=s3kret&sentinel_pasword=pa55word",
    "unix://:s3kret@/tmp/no-such-socket?pasword=pa55word",
    "cluster://:s3kret@localhost:1",
    "redi://:s3kret@localhost:1",
    "redis//:s3kret@localhost:1",
    "redis:/:s3kret@localhost:1",
    ":s3kret@localhost:1",
]
WRONG_DATABASES = [
    "postgresql://joe:s3kret@localhost:x/db",
    "postgresql://joe:s3kret/pa55word@localhost:1/db",
    "postgresql://joe:s3kret@pa55word@localhost:1/db",
    "postgresql://joe:s3kret#pa55word@localhost:1/db",
    "postgresql://:s3kret",
    "mysql://joe:s3kret@localhost:1/db?pasword=pa55word",
    "postgres//joe:s3kret@localhost/db",
]


def hides(text: str) -> bool:
    return not [part for part in PARTS if part in text]


@pytest.mark.parametrize("url", WRONG)
def test_what_is_said_of_a_wrong_server(url: str, tmp_path: Path) -> None:
    assert hides(mask_url(url))
    said = []
    for env in ({"REDIS_URL": url}, {"HENCHMAN_REDIS_URL": url}):
        said.append(_of_config(tmp_path, env))
    said.append(_of_config(tmp_path, {}, redis_url=url))
    (tmp_path / "henchman.toml").write_text(f'redis_url = "{url}"')
    said.append(_of_config(tmp_path, {}))
    (tmp_path / "henchman.toml").write_text(f'redis_url = ["{url}"]')
    said.append(_of_config(tmp_path, {}))
    try:
        check_url(url)
    except ConfigError as error:
        said.append(str(error))
    assert [text for text in said if not hides(text)] == []


@pytest.mark.parametrize("url", WRONG)
def test_what_is_said_when_it_is_used(url: str) -> None:
    said = []
    try:
        runner = Connections(url, connect_timeout=0.5)
        said.append(repr(runner))
        runner.run(ask_time(ServerClock()))
    except HenchmanError as error:
        said.append(str(error))
    assert [text for text in said if not hides(text)] == []


@pytest.mark.parametrize("url", WRONG_DATABASES)
def test_what_is_said_of_a_wrong_database(url: str, tmp_path: Path) -> None:
    said = [_of_config(tmp_path, {"HENCHMAN_DATABASE_URL": url}), mask_url(url)]
    try:
        database = Database(url)
        said.append(database.shown)
        with database.reading():
            pass
    except HenchmanError as error:
        said.append(str(error))
    except Exception as error:  # not foreseen: the command line shows it too
        said.append(repr(error))
    assert [text for text in said if not hides(text)] == []


@pytest.mark.parametrize("url", [WRONG[0], WRONG[5], WRONG[16], WRONG[19]])
def test_what_the_command_line_says(url: str, tmp_path: Path) -> None:
    for words, env in ((["--redis", url, "queues"], {}), (["queues"], {"REDIS_URL": url})):
        done = subprocess.run(
            [sys.executable, "-m", "henchman", *words],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env={**os.environ, **env},
            check=False,
        )
        assert done.returncode != 0
        assert hides(done.stdout + done.stderr), done.stderr


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GET http://host:8000/a@b ok", "GET http://host:8000/a@b ok"),
        ("see redis://s3kret@h now", "see redis://***@h now"),
        (
            "https://u:s3kret@h/x and https://h/?a=b&passwd=s3 x@y",
            "https://u:***@h/x and https://h/?a=b&passwd=*** x@y",
        ),
        ("postgresql://joe:s3/kret@h/db x@y", "postgresql://joe:***@h/db x@y"),
        ("see redis://:one@a and redis://:two@b", "see redis://:***@a and redis://:***@b"),
        ("no address", "no address"),
    ],
)
def test_addresses_inside_of_a_text(text: str, shown: str) -> None:
    assert mask_urls(text) == shown


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost:6379/0",
        "redis://:6379/0",
        "redis://[::1]:6379/0?socket_timeout=3",
        "unix:///tmp/a@b.sock?db=0",
        "sentinel://a:26379,b,c:1/my/0?ssl=true",
        "postgresql://joe@h/db?sslmode=require",
        "sqlite:////tmp/x@y.db",
    ],
)
def test_what_holds_no_password_is_shown_as_it_is(url: str) -> None:
    assert mask_url(url) == url


def _of_config(folder: Path, env: dict[str, str], **arguments: object) -> str:
    try:
        config = Config.load(start=folder, env=env, arguments=arguments)
    except ConfigError as error:
        return str(error)
    return repr(config) + str(config.describe())
