"""The part of TensorRT 10 that calibration touches, and nothing beyond: mypy refuses any other
name.

Each protocol is called as the real class is; tests/bindings proves that the real bindings have
every name. TensorRT 11 has no
calibrators, so none of this is for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class ITensor(Protocol):
    """An input of a network."""

    name: str


class INetworkDefinition(Protocol):
    """A network, parsed."""

    num_inputs: int

    def get_input(self, index: int) -> ITensor:
        """One input."""
        ...


class ParserError(Protocol):
    """Why a network does not parse."""

    def node_name(self) -> str:
        """The ONNX node."""
        ...

    def node_operator(self) -> str:
        """Its operator."""
        ...

    def desc(self) -> str:
        """The parser's words."""
        ...


class OnnxParser(Protocol):
    """Reads ONNX files."""

    num_errors: int

    def parse_from_file(self, path: str) -> bool:
        """False when it does not parse."""
        ...

    def get_error(self, index: int) -> ParserError:
        """One reason."""
        ...


class IOptimizationProfile(Protocol):
    """Sizes by input."""

    def set_shape(
        self, input: str, min: tuple[int, ...], opt: tuple[int, ...], max: tuple[int, ...]
    ) -> None:
        """The sizes of one input."""
        ...


class IBuilderConfig(Protocol):
    """How to build."""

    builder_optimization_level: int
    int8_calibrator: Any

    def set_flag(self, flag: int) -> None:
        """Turns a builder flag on."""
        ...

    def add_optimization_profile(self, profile: IOptimizationProfile) -> int:
        """Adds sizes to build for."""
        ...

    def set_calibration_profile(self, profile: IOptimizationProfile) -> bool:
        """The sizes of calibration's batches: those of `opt`."""
        ...


class Builder(Protocol):
    """Builds plans."""

    def create_network(self, flags: int) -> INetworkDefinition:
        """An empty network."""
        ...

    def create_builder_config(self) -> IBuilderConfig:
        """An empty configuration."""
        ...

    def create_optimization_profile(self) -> IOptimizationProfile:
        """An empty profile."""
        ...

    def build_serialized_network(
        self, network: INetworkDefinition, config: IBuilderConfig
    ) -> object | None:
        """The plan; None when it does not build."""
        ...


class BuilderFlag(Protocol):
    """Builder flags."""

    INT8: int


class TensorRT(Protocol):
    """The module."""

    __version__: str
    BuilderFlag: BuilderFlag
    Builder: Callable[[Any], Builder]
    ILogger: Any
    IInt8EntropyCalibrator2: Any
    OnnxParser: Callable[[INetworkDefinition, Any], OnnxParser]
