"""The command line: one module a command, with its options and what it prints.

In come words of a shell, out go exit codes. `__main__` calls it; it calls what the commands do.
"""
