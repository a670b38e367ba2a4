"""What runs against what was deployed: what a person changed by hand, and what no file names."""
