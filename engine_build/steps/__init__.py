"""The steps of a build, one module each.

In comes what earlier steps made (`step.py`), out goes what later ones need. `pipeline.py` calls
them in order.
"""
