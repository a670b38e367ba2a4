"""What AWS takes, as data: written by `python -m roundhouse.templates.data --write` from AWS's own
schemas, never by hand.
"""
