"""PyTorch programs on the CPU, as builds judge and time them."""

from __future__ import annotations

from pathlib import Path

from container.pytorch.program import Program, torch_version
from engine_build.datasets.dataset import Array, Feed
from engine_build.errors import SourceFault, one_line
from engine_build.machine import cores
from engine_build.ort import flattened


class ExportedProgram:
    """A program, loaded by the code that serves it."""

    def __init__(self, path: Path) -> None:
        """Raises SourceFault, whatever is wrong with the file: torch's errors share no class."""
        try:
            self._program = Program(path, threads=cores())
        except Exception as error:
            raise SourceFault(
                f"torch {version()} refuses the program ({one_line(error)}); build it again."
            ) from error

    def rows(self, feed: Feed) -> Array:
        """Return float32 [rows, values], outputs flattened side by side. Raises SourceFault."""
        try:
            answer = self._program.run(feed)
        except Exception as error:
            raise SourceFault(
                f"torch {version()} cannot run the program ({one_line(error)}); build it again."
            ) from error
        return flattened(list(answer.values()))


def version() -> str | None:
    """Return the torch of this process without its build's suffix; None without torch."""
    known = torch_version()
    return None if known is None else known.partition("+")[0]
