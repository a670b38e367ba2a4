"""The server before vLLM, before real vLLM on this machine's processors."""
