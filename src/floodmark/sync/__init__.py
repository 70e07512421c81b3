"""Runs: one table's way through the stages, and strategies over many tables."""
