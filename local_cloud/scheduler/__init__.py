"""EventBridge Scheduler: schedules as AWS takes and refuses them, and what they start."""
