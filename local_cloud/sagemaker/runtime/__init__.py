"""Invocations: whole, streamed, of one model of many, and asynchronous.

In come requests of callers, out go answers of a variant or component.
"""
