"""Text generators: their model files, checkpoints, and the plan of what would serve them."""
