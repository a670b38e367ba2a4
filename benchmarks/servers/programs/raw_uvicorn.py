"""The least that uvicorn can do: parse a body and answer the same floats, both with orjson.

Argument: the port.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import orjson
import uvicorn

ROW = np.random.default_rng(0).random((1, 384), dtype=np.float32)


async def application(
    scope: Any, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """Answer on every path."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    if body:
        orjson.loads(body)
    answer = orjson.dumps({"outputs": ROW}, option=orjson.OPT_SERIALIZE_NUMPY)
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(answer)).encode()),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


if __name__ == "__main__":
    quiet = {"access_log": False, "log_level": "warning", "lifespan": "off", "ws": "none"}
    bare = {"server_header": False, "date_header": False, "loop": "uvloop", "http": "httptools"}
    uvicorn.run(application, host="127.0.0.1", port=int(sys.argv[1]), **quiet, **bare)
