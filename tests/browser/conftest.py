"""One browser and one showcase for all tests of this folder; each has a tab of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.chromium import Tab, axe_source, chromium, serving
from support.server import running_server
from support.showcase import Showcase, showcase

Opens = Callable[..., Tab]


@pytest.fixture(scope="package")
def _browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="package")
def _axe() -> str:
    return axe_source()


@pytest.fixture(scope="package")
def shown(_browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Showcase]:
    """Not the run's server: others empty it. Tests look at it and change nothing."""
    with running_server() as server, showcase(server.url, tmp_path_factory.mktemp("showcase")) as made:
        yield made


@pytest.fixture(scope="package")
def site(shown: Showcase) -> Iterator[str]:
    """Where its console is."""
    with serving(shown.app.console(label="shop", tone="production")) as address:
        yield address


@pytest.fixture
def opens(_browser: Any, _axe: str) -> Iterator[Opens]:
    """``opens(site, …)``: a new tab. At the end nothing went wrong in any of them."""
    tabs: list[Tab] = []

    def new(site: str, **options: Any) -> Tab:
        tabs.append(Tab(_browser, site, _axe, **options))
        return tabs[-1]

    yield new
    wrong = [f"{one.page.url}: {text}" for one in tabs for text in one.wrong()]
    for one in tabs:
        one.close()
    assert not wrong, "\n".join(wrong)
