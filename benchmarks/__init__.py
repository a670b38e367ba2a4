"""Benchmarks: speed and accuracy of runtimes and servers; no part of the tests.

In come networks and this machine, out go JSON and the tables of docs/benchmarks. `make bench` calls
it; it may import everything, and nothing imports it.
"""
