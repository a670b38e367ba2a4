"""The pipeline of an embedding checkpoint: how it pools, and what sentence-transformers answers.

Sources: modules.json and the modules' config.json as sentence-transformers writes them: booleans
`pooling_mode_*` up to version 5, one `pooling_mode` since; sentence_transformers' Pooling reads
both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np

from engine_build.datasets.dataset import Array, Sample
from engine_build.errors import SourceFault, one_line
from engine_build.sources.checkpoint import read_json

POOLINGS = ("mean", "cls")
ALLOWED = "Transformer, Pooling, and Normalize after them or not"
EXPORT_IT = (
    "Export the whole pipeline to ONNX yourself, with one output [batch, values], and name the "
    "file as `source.onnx`."
)


@dataclass(frozen=True, kw_only=True)
class EmbeddingPipeline:
    """What follows the encoder: a pooling over tokens and, where there is one, L2 normalisation.

    By default what sentence-transformers makes of a checkpoint without modules.json.
    """

    pooling: str = "mean"
    normalize: bool = False


def embedding_pipeline(folder: Path) -> EmbeddingPipeline:
    """Return the pipeline of a checkpoint. Raises SourceFault for one that is not built."""
    modules = read_json(folder / "modules.json", [])
    if not modules:
        return EmbeddingPipeline()
    if not all(
        isinstance(module, dict) and {"type", "path"} <= module.keys() for module in modules
    ):
        raise SourceFault(
            "modules.json of the checkpoint has a module without a type or a path; "
            "fetch or save it again."
        )
    # Types of other packages stay whole.
    own = re.compile(r"^sentence_transformers\.(.*\.)?")
    names = [own.sub("", str(module["type"])) for module in modules]
    if names not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise SourceFault(
            f"the checkpoint has the modules {', '.join(names)}; allowed: {ALLOWED}. {EXPORT_IT}"
        )
    path = str(modules[1]["path"])
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise SourceFault(
            f"modules.json of the checkpoint names the folder {path!r}; save it again."
        )
    return EmbeddingPipeline(pooling=_pooling(folder, path), normalize=len(names) == 3)


def _pooling(folder: Path, path: str) -> str:
    from sentence_transformers.sentence_transformer.modules import Pooling

    read_json(folder / path / "config.json", {})
    try:
        mode = Pooling.load(str(folder), subfolder=path, local_files_only=True).pooling_mode
    except Exception as error:
        raise SourceFault(
            f"{path}/config.json of the checkpoint does not say how it pools ({one_line(error)}); "
            "fetch or save the checkpoint again."
        ) from error
    if mode not in POOLINGS:
        modes = mode if isinstance(mode, str) else " + ".join(mode)
        raise SourceFault(
            f"the checkpoint pools by {modes}; allowed: {', '.join(POOLINGS)}. {EXPORT_IT}"
        )
    return str(mode)


def reference_encoder(folder: Path, longest: int) -> Callable[[Sequence[Sample]], Array]:
    """Return sentence-transformers' own `encode()` of a checkpoint: float32 [texts, values].

    In float32 on the CPU; texts are cut at `longest` tokens, as the engine does. Raises
    SourceFault.
    """
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    loading = {"attn_implementation": "eager", "dtype": torch.float32, "use_safetensors": True}
    try:
        model = SentenceTransformer(
            str(folder),
            device="cpu",
            local_files_only=True,
            trust_remote_code=False,
            model_kwargs=loading,
        )
        model.max_seq_length = longest
    except Exception as error:
        raise SourceFault(
            f"sentence-transformers cannot load the checkpoint ({one_line(error)}), so there is no "
            "reference; save the checkpoint again with sentence-transformers."
        ) from error
    return lambda texts: model.encode(list(texts), show_progress_bar=False)


def refuse_other_vectors(built: Array, reference: Array) -> None:
    """Refuse a network whose vectors are not those of `encode()`. Raises SourceFault."""
    if built.shape == reference.shape and np.allclose(built, reference, rtol=1e-4, atol=1e-4):
        return
    difference = f"[{built.shape[1]}] against [{reference.shape[1]}] values"
    if built.shape == reference.shape:
        lengths = np.linalg.norm(built, axis=1) * np.linalg.norm(reference, axis=1)
        cosine = (built * reference).sum(axis=1) / np.maximum(lengths, 1e-12)
        difference = f"by {np.abs(built - reference).max():.2g}, smallest cosine {cosine.min():.4f}"
    raise SourceFault(
        "the network's vectors differ from those of sentence-transformers' encode() "
        f"({difference}); the checkpoint names a prompt, a lower-casing or a tokenizer class that "
        f"tokenizer.json does not hold. Save the checkpoint without it, or: {EXPORT_IT}"
    )
