"""Ordered queues: their definitions, their pushes, and how workers get and settle their work."""
