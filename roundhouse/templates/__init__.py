"""Template rules, run on folders of templates."""
