"""HTTP/1.1 on asyncio over httptools: connections, messages, routes."""
