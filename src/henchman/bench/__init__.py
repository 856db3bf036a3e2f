"""Measuring: the parts that every bench shares, and the short form, ``henchman bench``."""
