"""What operators see: metrics in Prometheus' text format, and one JSON line per failure."""
