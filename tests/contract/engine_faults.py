"""What a test may demand of the faulty engine: files in a folder that both know."""

LOADS, HOLDS, FAILS, NO_MEMORY, NO_MEMORY_TO_WARM = (
    "loads",
    "holds",
    "fails",
    "no-memory",
    "no-memory-to-warm",
)
NO_MEMORY_TO_RUN, NO_MEMORY_AT_ALL = "no-memory-to-run", "no-memory-at-all"
"""While the file is there: loading goes on; a batch goes on; every batch fails; loading fails.

Warming up fails; LARGE rows fail; every row fails.
"""
TAKEN = "taken"
"""There once an engine was asked for, or given a batch."""
POISON, LARGE = 13, 17
"""The engine fails on batches that hold a row of so many tokens.

It has no memory for rows of so many while NO_MEMORY_TO_RUN.
"""
