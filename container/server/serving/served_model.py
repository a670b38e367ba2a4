"""What an archive says about how its model is asked: the signature, and the encoder of texts."""

from __future__ import annotations

from container.archive import EngineArchive
from container.server.engines.rows import TextEncoder
from container.server.engines.sizes import longest_sequence
from container.server.types import Signature, TensorSignature
from onboarding.manifest import Manifest


def signature_of(manifest: Manifest) -> Signature | TensorSignature:
    """The served model as a client sees it: of texts when the archive has a tokenizer, else of
    tensors.
    """
    if manifest.tokenizer_file is None:
        return TensorSignature(
            model=manifest.model, inputs=manifest.inputs, outputs=manifest.outputs
        )
    return Signature(
        model=manifest.model,
        input_name=manifest.inputs[0].name,
        output_name=manifest.outputs[0].name,
    )


def encoder_of(archive: EngineArchive) -> TextEncoder | None:
    """What makes rows of texts; `None` for a model of tensors.

    Raises what the tokenizer's file raises.
    """
    if archive.tokenizer is None:
        return None
    manifest = archive.manifest
    most = longest_sequence(manifest.optimization_profiles)
    return TextEncoder(archive.tokenizer, max_tokens=most, truncates=manifest.auto_truncate)


def platform_of(manifest: Manifest) -> str:
    """The engine's name in Triton's words, as KServe's metadata has it."""
    return {"onnxruntime": "onnxruntime_onnx", "tensorrt": "tensorrt_plan"}[manifest.runtime.name]
