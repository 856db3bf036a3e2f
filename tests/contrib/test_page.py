"""The examples of docs/transactions.md, on a real server and real databases, in a process with Django's settings."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from redis import Redis

from contrib.conftest import engine_address
from support.django import django_database
from support.processes import clean_environ

PAGE = (Path(__file__).parents[2] / "docs" / "transactions.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"(<!-- not run[^\n]*-->\n\n)?```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
SETTINGS = """
import pymysql

pymysql.install_as_MySQLdb()
DATABASES = {{"default": {database!r}}}
USE_TZ = True
"""
HEAD = """
import django

django.setup()
"""
TAIL = """
import shop

shop.place_order("21")
shop.app.close()
"""


def test_every_example_runs(tmp_path: Path, redis_url: str, redis: Redis, database_url: str) -> None:
    settings = SETTINGS.format(database=django_database(database_url))
    (tmp_path / "settings.py").write_text(settings, encoding="utf-8")
    address = engine_address(database_url).render_as_string()
    script = [HEAD]
    for excuse, block in BLOCKS:
        if named := re.match(r"# (\w+\.py)\n", block):
            (tmp_path / named[1]).write_text(block.replace("sqlite://", address), encoding="utf-8")
        elif not excuse:
            script.append(block)
    (tmp_path / "run.py").write_text("\n".join([*script, TAIL]), encoding="utf-8")
    env = clean_environ() | {"HENCHMAN_REDIS_URL": redis_url, "DJANGO_SETTINGS_MODULE": "settings"}
    command = [sys.executable, "-W", "error", "run.py"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert len(script) == 6
    # 18 and 17 of the databases, 19 and 20 of the batch, 17 of SQLAlchemy, 21 of the end
    assert redis.llen("queue:default") == 6
