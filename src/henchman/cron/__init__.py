"""Crons: jobs at times of a calendar."""
