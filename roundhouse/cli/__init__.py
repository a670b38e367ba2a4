"""The command line: one module a command, with its options and what it prints."""
