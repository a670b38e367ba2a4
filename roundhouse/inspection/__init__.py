"""What `roundhouse init` finds in a source: its task, its inputs, its sizes, its digest.

In comes a source, out go a model file and its datasets. `init` calls it.
"""
