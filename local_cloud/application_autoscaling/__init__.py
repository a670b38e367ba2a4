"""The local Application Auto Scaling."""
