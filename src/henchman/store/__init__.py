"""Redis as values: keys, scripts, connections, the embedded server. Moves bytes, knows no jobs."""
