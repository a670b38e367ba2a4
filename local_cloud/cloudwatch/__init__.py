"""The local CloudWatch beyond MiniStack's: metric math, and alarms by AWS's rules."""
