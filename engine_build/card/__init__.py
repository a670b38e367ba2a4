"""Pages of reports: their templates, styles and numbers. Pure functions of what was recorded."""
