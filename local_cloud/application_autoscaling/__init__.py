"""The parts of the local Application Auto Scaling.

Requests, records, schedules, alarms of policies, what they bring about.
"""
