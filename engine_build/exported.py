"""PyTorch programs on the CPU, as builds judge and time them."""

from __future__ import annotations

from pathlib import Path

from container.pytorch.library import NoTorch, torch_version
from container.pytorch.program import Program
from container.pytorch.scan import ProgramRefused
from engine_build.datasets.dataset import Array, Feed
from engine_build.errors import SourceFault, one_line
from engine_build.machine import cores
from engine_build.ort import flattened


class ExportedProgram:
    """A program, loaded by the code that serves it."""

    def __init__(self, path: Path) -> None:
        """Raises SourceFault."""
        try:
            self._program = Program(path, threads=cores())
        except (NoTorch, ProgramRefused, RuntimeError, ValueError) as error:
            raise SourceFault(
                f"torch {version()} refuses the program ({one_line(error)}); build it again."
            ) from error
        self.inputs: tuple[str, ...] = tuple(item.name for item in self._program.signature.inputs)

    def rows(self, feed: Feed) -> Array:
        """Return float32 [rows, values], outputs flattened side by side. Raises SourceFault."""
        return flattened(list(self._program.run(feed).values()))


def version() -> str | None:
    """Return the torch of this process without its build's suffix; None without torch."""
    known = torch_version()
    return None if known is None else known.partition("+")[0]
