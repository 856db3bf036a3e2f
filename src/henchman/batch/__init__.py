"""Batches: jobs under one id."""
