"""HTTP/1.1 on asyncio over httptools: connections, messages, routes.

In come bytes of clients, out go responses of the routes that an app gives. All three apps call it.
"""
