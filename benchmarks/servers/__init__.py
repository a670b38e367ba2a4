"""Our server beside Triton, and the engine with no server."""
