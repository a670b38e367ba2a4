"""An endpoint's scaling: targets with their derivations, bounds, schedules."""
