"""docs/outbox.md walked as a newcomer does, on each database that the page names."""

from __future__ import annotations

from pathlib import Path

import pytest

from fundamentals.test_walks import WALKED, Reader
from support.databases import SERVERS
from support.outbox import removed
from support.sql_servers import Servers

SHOWN = "sqlite:///market.sqlite"
DRIVERS = {"postgresql://": "postgresql+psycopg://", "mysql://": "mysql+pymysql://"}  # as the page says of engines


@pytest.mark.frameworks("it walks a page with workers of its own, as those of the how-to pages")
@pytest.mark.parametrize("name", SERVERS)
def test_its_task_on_a_database_server(name: str, tmp_path: Path, servers: Servers) -> None:
    url = servers.url(name, tmp_path)
    removed(url)
    engine = url
    for plain, with_driver in DRIVERS.items():
        assert f'create_engine("{with_driver}' in WALKED["outbox"]
        engine = engine.replace(plain, with_driver)
    text = WALKED["outbox"].replace(f'create_engine("{SHOWN}")', f'create_engine("{engine}")').replace(SHOWN, url)
    assert text.count(url) >= 2
    reader = Reader(tmp_path)
    try:
        reader.walk(text)
    finally:
        reader.stop()
        removed(url)
    assert not (tmp_path / "market.sqlite").exists()
