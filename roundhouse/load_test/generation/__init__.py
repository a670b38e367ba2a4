"""Load tests of text generators: time to the first token, time between tokens, goodput."""
