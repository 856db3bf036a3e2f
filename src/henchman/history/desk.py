"""What commands do with history, behind one door: SQLAlchemy is loaded when somebody comes through it."""

from __future__ import annotations

from henchman.config import Config
from henchman.errors import HistoryError
from henchman.history import migrate
from henchman.history.database import Database
from henchman.history.migrate import Version
from henchman.history.reading import History
from henchman.history.retention import Pruning, prune

__all__ = ["Desk"]


class Desk:
    """The history of these settings; HistoryError says why there is none. ``close`` it after use."""

    def __init__(self, config: Config) -> None:
        address = config.history_url()
        if address is None:
            raise HistoryError(config.why_history_is_off())
        self._config = config
        self.database = Database(address)
        self.shown = self.database.shown
        self.reading = History(self.database)

    def close(self) -> None:
        """Close idle connections."""
        self.database.close()

    @property
    def makes_itself(self) -> bool:
        """Whether its tables are made and upgraded by the recorder: those of SQLite."""
        return self.database.kind == "sqlite"

    def current(self) -> Version:
        """Which schema it has."""
        return migrate.current(self.database)

    def upgrade(self) -> Version:
        """Bring it to this release's schema."""
        return migrate.upgrade(self.database)

    def prune(self, now: float) -> Pruning:
        """Forget what is too old at ``now``, the server's Unix time."""
        return prune(self.database, self._config, now=now)
