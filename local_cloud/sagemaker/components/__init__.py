"""Inference components: copies on the instances of an endpoint.

In come their operations and counts, out go copies that answer. Hosting's endpoints hold them.
"""
