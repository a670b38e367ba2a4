"""Which models fit together in an instance's memory, what their eviction costs, and how to spread
them. Pure.
"""
