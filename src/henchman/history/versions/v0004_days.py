"""The ends of a day are counted by an index alone."""

from __future__ import annotations

from collections.abc import Sequence

from alembic import op

revision = "0004"
down_revision: str | None = "0003"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """On a large table this takes its time."""
    op.create_index("henchman_events_day", "henchman_events", ["ended_at", "status", "class"])


def downgrade() -> None:
    """Without it."""
    op.drop_index("henchman_events_day", "henchman_events")
