"""The HTTP server before vLLM: the engine reads only what this has checked and written again.

It starts the engine, bounds what waits for it, relays its streams event by event, and on SIGTERM
lets the streams in flight end before the engine does.
"""
