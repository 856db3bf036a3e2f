"""Why a job did not end well is a column, to be searched for: ``timeout``, ``crash``, ``cancelled``."""

from __future__ import annotations

from collections.abc import Sequence

from alembic import op
from sqlalchemy import Column, String

revision = "0003"
down_revision: str | None = "0002"
branch_labels: str | Sequence[str] | None = None
depends_on: str | Sequence[str] | None = None


def upgrade() -> None:
    """Empty for what was recorded before: nobody wrote it down."""
    op.add_column("henchman_events", Column("cause", String(20)))


def downgrade() -> None:
    """Without it."""
    op.drop_column("henchman_events", "cause")
