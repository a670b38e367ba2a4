"""Run in a child process: prints the names of NVIDIA's bindings, by dotted class, as JSON."""

from __future__ import annotations

import inspect
import json

import tensorrt_bindings
from cuda.bindings import runtime


def class_names(owner: object, path: str, depth: int = 3) -> dict[str, list[str]]:
    """The names of a module or class and, below it, of its classes."""
    names = {path: dir(owner)}
    for name in names[path]:
        value = getattr(owner, name, None)
        if depth and inspect.isclass(value) and not name.startswith("_"):
            names |= class_names(value, f"{path}.{name}", depth - 1)
    return names


if __name__ == "__main__":
    names = class_names(tensorrt_bindings, "tensorrt") | class_names(runtime, "cuda")
    print(json.dumps({"version": tensorrt_bindings.__version__, "names": names}))
