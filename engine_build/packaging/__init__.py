"""From an engine to a published archive: model repository, passport, deterministic bytes, atomic
publish.
"""
