"""What padding and truncation cost a model's real requests, and optimization profiles for them."""
