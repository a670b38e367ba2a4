"""The faults that a test demands of the faulty engine: files in a folder that both know."""

LOADS, HOLDS, FAILS = "loads", "holds", "fails"
"""While the file is there: loading goes on; a batch goes on; every batch fails."""
NO_MEMORY_TO_WARM, NO_MEMORY_TO_RUN = "no-memory-to-warm", "no-memory-to-run"
"""Warming up fails; batches with LARGE rows fail."""
TAKEN = "taken"
"""There once an engine was loaded, or was given a batch."""
POISON, LARGE = 13, 17
"""The engine fails on batches that hold a row of so many tokens.

It has no memory for rows of so many while NO_MEMORY_TO_RUN.
"""
