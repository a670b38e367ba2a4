"""Benchmarks: speed and accuracy of runtimes and servers; no part of the tests."""
