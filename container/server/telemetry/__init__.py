"""What operators see: metrics in Prometheus' text format, and one JSON line per failure.

Every layer above engines counts with it; /metrics and stderr show it.
"""
