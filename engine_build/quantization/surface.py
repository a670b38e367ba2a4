"""The part of TensorRT 10 that calibration touches; mypy refuses any other name.

Each protocol is called as the real class is; tests/bindings proves that the real bindings have
every name. TensorRT 11 has no calibrators, so none of this is for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from container.tensorrt import surface

Sizes = tuple[int, ...]


class ITensor(Protocol):
    """A tensor of a network."""

    name: str


class LayerType(Protocol):
    """Kinds of layers."""

    CONVOLUTION: int
    DECONVOLUTION: int
    MATRIX_MULTIPLY: int


class ILayer(Protocol):
    """A layer of a network; `get_input` returns None for an input that is left out."""

    type: int
    num_inputs: int

    def get_input(self, index: int) -> ITensor | None: ...


class INetworkDefinition(Protocol):
    """A parsed network."""

    num_inputs: int
    num_layers: int

    def get_input(self, index: int) -> ITensor: ...
    def get_layer(self, index: int) -> ILayer: ...


class ParserError(Protocol):
    """Why a network does not parse: the ONNX node, its operator, the parser's message."""

    def node_name(self) -> str: ...
    def node_operator(self) -> str: ...
    def desc(self) -> str: ...


class OnnxParser(Protocol):
    """Reads ONNX files; `parse_from_file` returns False for one that does not parse."""

    num_errors: int

    def parse_from_file(self, path: str) -> bool: ...
    def get_error(self, index: int) -> ParserError: ...


class IOptimizationProfile(Protocol):
    """Sizes by input."""

    def set_shape(self, input: str, min: Sizes, opt: Sizes, max: Sizes) -> None: ...


class IBuilderConfig(Protocol):
    """Options of a build; calibration's batches have the sizes of `opt`."""

    builder_optimization_level: int
    int8_calibrator: Any

    def set_flag(self, flag: int) -> None: ...
    def add_optimization_profile(self, profile: IOptimizationProfile) -> int: ...
    def set_calibration_profile(self, profile: IOptimizationProfile) -> bool: ...


class Builder(Protocol):
    """Builds plans; `build_serialized_network` returns None for one that does not build."""

    def create_network(self, flags: int) -> INetworkDefinition: ...
    def create_builder_config(self) -> IBuilderConfig: ...
    def create_optimization_profile(self) -> IOptimizationProfile: ...
    def build_serialized_network(
        self, network: INetworkDefinition, config: IBuilderConfig
    ) -> object | None: ...


class BuilderFlag(Protocol):
    """Builder flags."""

    INT8: int


class TensorRT(surface.TensorRT, Protocol):
    """The module."""

    BuilderFlag: BuilderFlag
    LayerType: LayerType
    Builder: Callable[[Any], Builder]
    IInt8EntropyCalibrator2: Any
    OnnxParser: Callable[[INetworkDefinition, Any], OnnxParser]
