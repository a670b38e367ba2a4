"""The networks of an engine: found by key or made, with what the source model itself answers."""
