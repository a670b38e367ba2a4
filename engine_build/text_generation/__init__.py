"""Checkpoints of text generators: fetched, quantized, compared with their source, published.

In come a model file's recipe and a checkpoint, out go a checkpoint and its record. The program of
builds calls it.
"""
