"""The local CloudWatch beyond MiniStack's.

Values in distributions, metric math, alarms by AWS's rules.
"""
