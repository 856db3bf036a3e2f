"""Alembic's scripts, one a change of the schema; loaded by Alembic from this folder, imported by nobody."""
