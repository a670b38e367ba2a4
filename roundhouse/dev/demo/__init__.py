"""The demonstrations: from a YAML file to checked answers, on a CPU, a GPU, and with text.

In come the shipped models, out go tables of answers against PyTorch's. `demo` calls it.
"""
