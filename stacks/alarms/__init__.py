"""An endpoint's alarms.

What each watches, when it trips, and the measurement that its threshold comes from.
"""
