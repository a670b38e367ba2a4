"""From an engine to a published archive.

In come a plan or network and its record; out go a Triton model repository, its manifest and an
archive of bytes that follow from them. The package step calls it.
"""
