"""Engines built in an environment: started, followed, recorded."""
