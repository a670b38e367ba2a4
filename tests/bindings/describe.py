"""Run in a child process.

Prints every name that NVIDIA's Python bindings have, by dotted class, as one JSON object.
"""

from __future__ import annotations

import inspect
import json

import tensorrt_bindings
from cuda.bindings import runtime

DEPTH = 3


def described(owner: object, path: str, depth: int = DEPTH) -> dict[str, list[str]]:
    """The names of a module or class and, below it, of its classes."""
    names = dir(owner)
    found = {path: names}
    for name in names:
        value = getattr(owner, name, None)
        if depth and inspect.isclass(value) and not name.startswith("_"):
            found |= described(value, f"{path}.{name}", depth - 1)
    return found


if __name__ == "__main__":
    found = described(tensorrt_bindings, "tensorrt") | described(runtime, "cuda")
    print(json.dumps({"version": tensorrt_bindings.__version__, "names": found}))
