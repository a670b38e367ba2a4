"""Real shared libraries for tests, made by gcc: a TensorRT of no code, and plugins for it.

`python -m tests.shared_libraries` writes the plugin of the onboarding fixtures anew.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

FIXTURE = Path(__file__).parent / "fixtures/onboarding/base/models/data/libscale.so"
TENSORRT = "void *getPluginRegistry(void) { return 0; }\n"
PLUGIN = """
#include <stdlib.h>
extern void *getPluginRegistry(void);
__attribute__((constructor)) static void add(void) {
  getPluginRegistry();
  setenv("ROUNDHOUSE_TEST_PLUGIN", NAME, 1);
}
"""
"""It registers nothing, and says in the environment of its process that it was loaded."""
SMALL = (
    "-s",
    "-nostdlib",
    "-Wl,--build-id=none,-z,noseparate-code,-z,max-page-size=16,-z,norelro",
)
AARCH64 = (183).to_bytes(2, "little")


def tensorrt(folder: Path, major: int = 10) -> Path:
    """Make libnvinfer.so.MAJOR."""
    path = folder / f"libnvinfer.so.{major}"
    _compile(TENSORRT, path, f"-Wl,-soname,{path.name}")
    return path


def plugin(path: Path, *, major: int | None = 10) -> Path:
    """Make a plugin that is linked with a TensorRT beside it; with none where `major` is None."""
    path.parent.mkdir(parents=True, exist_ok=True)
    linked = () if major is None else (str(tensorrt(path.parent, major)),)
    _compile(PLUGIN, path, f'-DNAME="{path.name}"', *linked)
    return path


def of_aarch64(path: Path) -> bytes:
    """Return a library's bytes with the ELF header of another processor."""
    data = path.read_bytes()
    return data[:18] + AARCH64 + data[20:]


def _compile(source: str, path: Path, *options: str) -> None:
    command = ("gcc", "-x", "c", "-", "-x", "none", "-shared", "-fPIC", "-o", str(path), *options)
    subprocess.run(command, input=source.encode(), check=True, env=os.environ)


def main() -> None:
    """Write the fixture: as small as gcc makes it."""
    source = PLUGIN.replace("#include <stdlib.h>\n", "").replace(
        '  setenv("ROUNDHOUSE_TEST_PLUGIN", NAME, 1);\n', ""
    )
    library = tensorrt(FIXTURE.parent)
    _compile(source, FIXTURE, *SMALL, str(library))
    library.unlink()


if __name__ == "__main__":
    main()
