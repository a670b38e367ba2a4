"""The load tool: what `roundhouse bench` does."""
