"""An endpoint's alarms: what each watches, when it trips, and where its threshold comes from."""
