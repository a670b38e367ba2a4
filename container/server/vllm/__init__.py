"""vLLM behind the HTTP server: the engine reads only what this has checked and written again.

It bounds what waits for the engine, relays its streams event by event, and on SIGTERM lets the
streams in flight end before the engine does.
"""
