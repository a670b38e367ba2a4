"""Which waiting rows run next, and how their answers find home."""
