"""The pipeline and prompts of an embedding checkpoint, and sentence-transformers' answers.

Sources: modules.json, the modules' config.json, sentence_bert_config.json as sentence-transformers
writes them: booleans `pooling_mode_*` up to version 5, one `pooling_mode` since;
sentence_transformers' Pooling reads both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from engine_build.datasets.dataset import Array, Sample
from engine_build.errors import SourceFault, one_line
from engine_build.sources.checkpoint import are_alike, load_reference_model, read_json
from onboarding.manifest import Prompts
from onboarding.model_spec import ModelSpec
from onboarding.values import PIPELINE_BEGIN, PIPELINE_HEADS

VECTOR = "sentence_embedding"
"""What sentence-transformers calls the vector of a text."""
PROMPTS_FILE = "config_sentence_transformers.json"
WEIGHTS = {"Dense": "model.safetensors", "LayerNorm": "model.safetensors"}
ALLOWED = f"{', '.join(PIPELINE_BEGIN)}, and after them {', '.join(PIPELINE_HEADS)} or nothing"
EXPORT_IT = (
    "Export the whole pipeline to ONNX yourself, with one output [batch, values], and name the "
    "file as `source.onnx`."
)


@dataclass(frozen=True, kw_only=True)
class Head:
    """A module after the pooling: its class in sentence-transformers, its folder."""

    kind: str
    folder: str


@dataclass(frozen=True, kw_only=True)
class EmbeddingPipeline:
    """What surrounds the encoder: poolings over tokens, concatenated, and the heads after them.

    By default what sentence-transformers makes of a checkpoint without modules.json.
    """

    poolings: tuple[str, ...] = ("mean",)
    includes_prompt: bool = True
    """Whether a prompt's tokens are pooled too."""
    heads: tuple[Head, ...] = ()
    longest: float | None = None
    """Tokens at which `encode()` cuts a text; None: those that the encoder takes."""
    lowercases: bool = False
    """Whether texts are lower-cased, whatever the tokenizer does."""


def embedding_pipeline(folder: Path) -> EmbeddingPipeline:
    """Return the pipeline of a checkpoint. Raises SourceFault for one that is not built."""
    modules = read_json(folder / "modules.json", [])
    if not modules:
        return EmbeddingPipeline(**_text_settings(folder))
    kinds, paths = _kinds(modules), [str(module["path"]) for module in modules]
    if tuple(kinds[:2]) != PIPELINE_BEGIN or not set(kinds[2:]) <= set(PIPELINE_HEADS):
        raise SourceFault(
            f"the checkpoint has the modules {', '.join(kinds)}; allowed: {ALLOWED}. {EXPORT_IT}"
        )
    for path in paths:
        if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
            raise SourceFault(
                f"modules.json of the checkpoint names the folder {path!r}; save it again."
            )
    pooling = _pooling(folder, paths[1])
    modes = pooling.pooling_mode
    heads = zip(kinds[2:], paths[2:], strict=True)
    return EmbeddingPipeline(
        poolings=(modes,) if isinstance(modes, str) else tuple(modes),
        includes_prompt=bool(pooling.include_prompt),
        heads=tuple(Head(kind=kind, folder=path) for kind, path in heads),
        **_text_settings(folder),
    )


def _kinds(modules: Sequence[Any]) -> list[str]:
    """Return the names of the modules' classes; those of other packages stay whole."""
    if not all(
        isinstance(module, dict) and {"type", "path"} <= module.keys() for module in modules
    ):
        raise SourceFault(
            "modules.json of the checkpoint has a module without a type or a path; "
            "fetch or save it again."
        )
    own = re.compile(r"^sentence_transformers\.(.*\.)?")
    return [own.sub("", str(module["type"])) for module in modules]


def _text_settings(folder: Path) -> dict[str, Any]:
    """Return what the Transformer module, or else the tokenizer, says of texts."""
    paths = sorted(folder.glob("sentence_*_config.json"))
    config = read_json(paths[0], {}) if paths else {}
    tokenizer = folder / "tokenizer_config.json"
    name, key = paths[0].name if paths else "", "max_seq_length"
    longest = config.get(key)
    if longest is None:
        name, key = tokenizer.name, "model_max_length"
        longest = read_json(tokenizer, {}).get(key)
    # transformers writes 1e30 where a tokenizer knows no limit.
    if longest is not None and (type(longest) not in (int, float) or longest < 1):
        raise SourceFault(
            f"{key} in {name} of the checkpoint is {longest!r}; allowed: a number of tokens. Save "
            "the checkpoint again."
        )
    return {"longest": longest, "lowercases": bool(config.get("do_lower_case", False))}


def _pooling(folder: Path, path: str) -> Any:
    """Return the Pooling module, which refuses modes that it does not know."""
    from sentence_transformers.sentence_transformer.modules import Pooling

    read_json(folder / path / "config.json", {})
    try:
        return Pooling.load(str(folder), subfolder=path, local_files_only=True)
    except Exception as error:
        raise SourceFault(
            f"{path}/config.json of the checkpoint does not say how it pools ({one_line(error)}); "
            "fetch or save the checkpoint again."
        ) from error


def load_head(folder: Path, head: Head) -> Any:
    """Return a head as sentence-transformers' own module, in float32. Raises SourceFault."""
    from sentence_transformers.base.modules import Dense, Normalize
    from sentence_transformers.sentence_transformer.modules import Dropout, LayerNorm

    config = read_json(folder / head.folder / "config.json", {})
    activation = config.get("activation_function")
    if activation is not None and not str(activation).startswith("torch."):
        raise SourceFault(
            f"the checkpoint's {head.folder} has the activation function {activation}, whose code "
            f"is not of torch and is not run; allowed: torch.nn's. {EXPORT_IT}"
        )
    weights = WEIGHTS.get(head.kind)
    if weights is not None and not (folder / head.folder / weights).is_file():
        raise SourceFault(
            f"the checkpoint's {head.folder} ({head.kind}) has no {weights}; pickled weights are "
            "not read: load it with sentence-transformers and save it again."
        )
    kinds = {"Dense": Dense, "LayerNorm": LayerNorm, "Normalize": Normalize, "Dropout": Dropout}
    try:
        module = kinds[head.kind].load(str(folder), subfolder=head.folder, local_files_only=True)
    except Exception as error:
        raise SourceFault(
            f"the checkpoint's {head.folder} ({head.kind}) cannot be loaded ({one_line(error)}); "
            "save the checkpoint again."
        ) from error
    for end in ("input", "output"):
        name = getattr(module, f"module_{end}_name", VECTOR)
        if name != VECTOR:
            raise SourceFault(
                f"the checkpoint's {head.folder} ({head.kind}) has the {end} {name}; allowed: "
                f"{VECTOR}. {EXPORT_IT}"
            )
    return module.float()


def reference_encoder(
    folder: Path, longest: int, prompt: str = ""
) -> Callable[[Sequence[Sample]], Array]:
    """Return sentence-transformers' own `encode()` of a checkpoint: float32 [texts, values].

    In float32 on the CPU; texts begin with `prompt` and are cut at `longest` tokens, as the engine
    does. Raises SourceFault.
    """
    model = load_reference_model("SentenceTransformer", folder, longest)
    return lambda texts: model.encode(list(texts), prompt=prompt, show_progress_bar=False)


def refuse_other_vectors(built: Array, reference: Array) -> None:
    """Refuse a network whose vectors are not those of `encode()`. Raises SourceFault."""
    if are_alike(built, reference):
        return
    difference = f"[{built.shape[1]}] against [{reference.shape[1]}] values"
    if built.shape == reference.shape:
        lengths = np.linalg.norm(built, axis=1) * np.linalg.norm(reference, axis=1)
        cosine = (built * reference).sum(axis=1) / np.maximum(lengths, 1e-12)
        difference = f"by {np.abs(built - reference).max():.2g}, smallest cosine {cosine.min():.4f}"
    raise SourceFault(
        "the network's vectors differ from those of sentence-transformers' encode() "
        f"({difference}); the checkpoint names a tokenizer class or another setting of texts "
        "that tokenizer.json does not hold, or its layers see the padding of a batch, as "
        f"ConvBERT's convolutions do. Save the checkpoint without the setting, or: {EXPORT_IT}"
    )


def served_prompts(source: Path, model: ModelSpec) -> Prompts | None:
    """Return the prompts that requests may name; None where there are none. Raises SourceFault.

    `source` is a checkpoint's folder or an ONNX file, which declares none.
    """
    if model.task != "text-embedding":
        return None
    declared = read_json(source / PROMPTS_FILE, {}) if source.is_dir() else {}
    given = declared.get("prompts") or {}
    if not isinstance(given, dict) or not all(
        text is None or isinstance(text, str) for text in given.values()
    ):
        raise SourceFault(
            f"the prompts in {PROMPTS_FILE} of the checkpoint are {str(given)[:80]}; allowed: an "
            "object of texts by name. Save the checkpoint again."
        )
    # sentence-transformers reads null as no prefix.
    texts = {name: text or "" for name, text in given.items()} | (model.source.prompts or {})
    default = model.source.default_prompt_name
    if default is None:
        default = declared.get("default_prompt_name")
    if default is not None and default not in texts:
        raise SourceFault(
            f"default_prompt_name is {default!r}, but the prompts are "
            f"{', '.join(sorted(texts)) or 'none'}; name one of them, or add it to "
            "`source.prompts` in the model file."
        )
    if not texts:
        return None
    if any(texts.values()) and source.is_dir() and not embedding_pipeline(source).includes_prompt:
        raise SourceFault(
            "the checkpoint leaves its prompts' tokens out of its pooling (include_prompt is false "
            "in the Pooling module's config.json), which no network here does; serve a checkpoint "
            f"whose {PROMPTS_FILE} and model file name no prompts, or one that pools them."
        )
    return Prompts(texts=texts, default_prompt_name=default)
