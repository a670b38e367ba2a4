"""The command line: one module a command, each with its options, what it does and what it prints."""
