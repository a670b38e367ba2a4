"""The local CloudWatch beyond MiniStack's: metric math, and alarms by AWS's rules.

In come metrics of endpoints, out go values and states of alarms. Autoscaling and rollouts ask it.
"""
