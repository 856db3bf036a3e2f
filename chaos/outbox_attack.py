"""The attack on the outbox: its database is killed. (Its relay is frozen with its host, see ``stop_attack.py``.)"""

from __future__ import annotations

from field import Field, until
from ledger import wall

__all__ = ["kill_database"]


def kill_database(field: Field, down: float) -> tuple[int, str]:
    """kill -9 of PostgreSQL, the postmaster and all its children, while rows are on their way; it starts again after
    ``down`` seconds."""
    market = field.market
    if market is None:
        return 0, "there is no outbox"
    rows = until(market.rows, 10.0, 0.1) or 0
    at = wall()
    killed = market.database.kill()
    field.sleep(down)
    market.database.start()
    return rows if killed else 0, f"{killed} processes, {rows} rows on their way, away for {wall() - at:.1f} s"
