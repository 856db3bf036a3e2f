"""Limits: how many jobs may run at once, or start in a time."""
