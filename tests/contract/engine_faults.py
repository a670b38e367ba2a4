"""The faults that a test demands of the faulty engine: files in a folder that both know."""

LOADS, HOLDS, FAILS = "loads", "holds", "fails"
"""While the file is there: loading goes on; a batch goes on; every batch fails."""
NO_MEMORY, NO_MEMORY_TO_WARM = "no-memory", "no-memory-to-warm"
"""Loading fails; warming up fails."""
NO_MEMORY_TO_RUN, NO_MEMORY_AT_ALL = "no-memory-to-run", "no-memory-at-all"
"""Batches with LARGE rows fail; every batch fails."""
TAKEN = "taken"
"""There once an engine was loaded, or was given a batch."""
POISON, LARGE = 13, 17
"""The engine fails on batches that hold a row of so many tokens.

It has no memory for rows of so many while NO_MEMORY_TO_RUN.
"""
