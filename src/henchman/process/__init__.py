"""Command line, supervisor, signals: the place where a worker is put together."""
