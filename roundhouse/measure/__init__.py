"""Load tests, comparisons and recommendation jobs: what `bench`, `compare` and `recommend` do.

In come the command's options, an endpoint or a URL, the model file's SLO and inputs; out go a
result with its verdicts, table and JSON, and entries of locks. The command and benchmarks call it.
"""
