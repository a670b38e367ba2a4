"""A server, put together: one model in one process or in several, or many models; and one HTTP
process of the several.
"""
