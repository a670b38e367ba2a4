"""Container images of an environment: which are missing, and their build."""
