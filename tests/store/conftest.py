from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from henchman import App
from henchman.embedded.server import EmbeddedServer
from support.embedded_user import UserProcess
from support.faces import Face
from support.runners import AwaitedRunner, Maker, PlainRunner
from support.server import server_binary


@pytest.fixture(params=[PlainRunner, AwaitedRunner], ids=["sync", "async"])
def runner(request: pytest.FixtureRequest) -> Iterator[Maker]:
    """Makes runners from a URL; the test goes through the sync and the async one."""
    maker = Maker(request.param)
    yield maker
    maker.close()


@pytest.fixture(params=[False, True], ids=["plain", "awaited"])
def face(request: pytest.FixtureRequest) -> Iterator[Face]:
    """What people look through: the plain form of each method, and the awaited one."""
    made = Face(request.param)
    yield made
    made.close()


@pytest.fixture
def app(redis_url: str, face: Face) -> Iterator[App]:
    """An app on the run's server, seen through a face."""
    made = App(redis_url=redis_url)
    yield made
    face.run(made.aclose())


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder for an embedded server, which is stopped at the end, as are those of copies beside it."""
    base = Path(tempfile.mkdtemp(prefix="hm-", dir="/tmp"))
    yield base / ".henchman"
    for turn in base.rglob("turn"):
        EmbeddedServer(turn.parent).stop(force=True)
    shutil.rmtree(base)


@pytest.fixture
def server(folder: Path) -> Iterator[EmbeddedServer]:
    """The server of ``folder``, used by this process."""
    one = EmbeddedServer(folder, binary=server_binary())
    yield one
    one.release()


@pytest.fixture
def user(folder: Path) -> Iterator[Callable[..., UserProcess]]:
    """Makes users of ``folder``, or of another one, in processes of their own."""
    made: list[UserProcess] = []

    def make(where: Path = folder, **options: object) -> UserProcess:
        made.append(UserProcess(where, **options))  # type: ignore[arg-type]
        return made[-1]

    yield make
    for one in made:
        one.kill()
