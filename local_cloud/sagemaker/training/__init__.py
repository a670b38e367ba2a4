"""Training jobs, which build engines on the types that serve them.

In comes a job's definition, out go its process, its log and its end.
"""
