"""What is known of an environment."""
