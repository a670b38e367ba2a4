"""Datasets, and what networks take of them.

In come files that a model file names, out go samples and batches. Steps, quantization and
evaluation call it.
"""
