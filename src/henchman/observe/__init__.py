"""Log lines, made from events."""
