"""Floodmark keeps an analytics warehouse in step with MySQL, driven by watermarks."""

__version__ = "0.1.0"
