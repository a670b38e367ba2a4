"""Benchmarks: what is fast and small here, measured and held against its bar.

Never part of the tests.
"""
