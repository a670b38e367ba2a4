"""Triton's own protobuf of a model configuration, without the gRPC client around it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

from google.protobuf import text_format


def _module() -> ModuleType:
    # The package itself imports grpc, which nothing here needs.
    root = importlib.util.find_spec("tritonclient")
    assert root is not None and root.submodule_search_locations is not None
    path = Path(root.submodule_search_locations[0]) / "grpc" / "model_config_pb2.py"
    spec = importlib.util.spec_from_file_location("model_config_pb2", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PROTOBUF = _module()


def parse_configuration(text: str) -> Any:
    """Return the configuration, as Triton reads it. Raises text_format.ParseError."""
    return text_format.Parse(text, PROTOBUF.ModelConfig())


def format_configuration(config: Any) -> str:
    """Return the configuration as text again."""
    return text_format.MessageToString(config)
