"""Immutable values, and pure functions of them. No I/O."""
