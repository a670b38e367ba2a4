"""The steps of an acceptance run, one module each."""
