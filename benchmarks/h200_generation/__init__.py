"""A text generator's engine and endpoint on one GPU: rates, KV cache, and what the plan said."""
