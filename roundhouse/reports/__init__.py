"""Reports as HTML: load tests and dashboards."""
