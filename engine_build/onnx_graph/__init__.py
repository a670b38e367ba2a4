"""ONNX networks: read, checked, stored by key, and refused in a sentence.

In come files of the source or of an earlier build, out go networks that every compiler here takes.
Sources, quantization and steps call it.
"""
