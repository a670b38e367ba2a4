"""Our load test of a text generator beside vLLM's own."""
