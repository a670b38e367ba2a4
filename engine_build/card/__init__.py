"""The engine card: one self-contained page per engine, and the same as JSON.

Pure functions of what was recorded.
"""
