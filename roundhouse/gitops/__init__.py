"""What a change of the repository does to an environment, computed from files alone."""
