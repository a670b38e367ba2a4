"""Dynamic batching: which waiting rows run next, and which run together."""
