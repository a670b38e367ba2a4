"""The local CloudWatch beyond MiniStack's: distributions, metric math, alarms by AWS's rules."""
