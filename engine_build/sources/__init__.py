"""Pinned sources: fetched, read and exported, or refused in a sentence.

In comes what a model file pins, out go a checkpoint or ONNX file, a float network, and the answers
of the source itself. Steps call it.
"""
