"""How long a model's real texts are, what padding them costs, and which profiles and buckets would
cost less.
"""
