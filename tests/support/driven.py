"""One app whose jobs write to a database server until their time-out, for a real worker process.

``DRIVEN_DATABASE`` is its address. Each transaction writes two rows of one number: it is there whole, or not at all.
"""

from __future__ import annotations

import contextlib
import os
import random
import time

import psycopg
import pymysql
from sqlalchemy import text
from sqlalchemy.exc import SQLAlchemyError

from henchman import App, JobTimeout, current_job
from henchman.errors import HistoryError
from henchman.history.database import Database

app = App(dead_max=10**6)
database = Database(os.environ["DRIVEN_DATABASE"])
MOST = 1 << 62


def _pooled() -> None:
    """As history is written: a connection of a pool that all threads share."""
    number = random.randrange(MOST)
    with database.writing() as connection:
        for half in (1, 2):
            connection.execute(text("INSERT INTO driven VALUES (:number, :half)"), {"number": number, "half": half})


def _plain() -> None:
    """A connection of its own, made and closed."""
    number, url = random.randrange(MOST), database.engine.url
    made = database.engine.dialect.create_connect_args(url)[1]
    connect = psycopg.connect if database.kind == "postgresql" else pymysql.connect
    with contextlib.closing(connect(**made)) as connection, connection.cursor() as cursor:
        for half in (1, 2):
            cursor.execute("INSERT INTO driven VALUES (%s, %s)", (number, half))
        connection.commit()


DEEDS = {"pooled": _pooled, "plain": _plain}


@app.job(name="write", retry=0)
def write(how: str) -> None:
    """Write once."""
    DEEDS[how]()


@app.job(name="toil", retry=0)
def toil(how: str) -> None:
    """Write until the time-out. What a driver raises after it was struck may take the place of that."""
    end = (current_job().deadline or 0.0) + 1.0
    while time.monotonic() < end:
        with contextlib.suppress(HistoryError, SQLAlchemyError, psycopg.Error, pymysql.Error):
            DEEDS[how]()
    raise JobTimeout
