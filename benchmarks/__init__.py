"""Benchmarks: speed, memory and accuracy held against bars; no part of the tests."""
