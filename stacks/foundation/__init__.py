"""What the foundation is made of."""
