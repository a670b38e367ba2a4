"""The spec of a TensorRT plugin: a library of operators that TensorRT itself lacks."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Annotated

from pydantic import Field

from onboarding.values import Value


class PluginSpec(Value):
    """A library of custom operators; it registers their creators when it is loaded."""

    file: Annotated[str, Field(pattern=r"^(.*/)?[A-Za-z0-9_][A-Za-z0-9_.+-]*\.so(\.[0-9]+)*$")] = (
        Field(description="Shared library: an s3:// URI, or a path relative to the onboarding root")
    )
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] = Field(
        description="SHA-256 of the library, as `sha256sum` prints it"
    )
    operators: tuple[Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$")], ...] = Field(
        min_length=1,
        description="Operators of the network that it computes; each is a function in the ONNX "
        "file too, by which it is judged",
    )

    @property
    def name(self) -> str:
        """The file's name, under which the archive carries it."""
        return PurePosixPath(self.file).name
