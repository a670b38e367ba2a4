"""The engine card: one self-contained page per engine, and the same as JSON; pure functions of what
was recorded.
"""
