"""The parts of the local Application Auto Scaling: requests, records, schedules, alarms of
policies, what they bring about.
"""
