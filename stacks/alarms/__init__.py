"""An endpoint's alarms: what each watches, when it trips, and the measurement that its threshold
comes from.
"""
