"""A database as SQLAlchemy sees it, for every room that keeps tables: history and the outbox."""
