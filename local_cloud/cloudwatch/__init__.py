"""The local CloudWatch beyond MiniStack's: values in distributions, metric math, alarms by AWS's
rules.
"""
