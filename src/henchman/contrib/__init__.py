"""Frameworks: what ties Henchman to the transactions of Django and SQLAlchemy."""
