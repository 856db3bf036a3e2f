"""Henchman over HTTP: what runs inside the user's own web application."""
