"""Threads: how many, and on which cores."""
