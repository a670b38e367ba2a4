"""One checkpoint in another number format, made by llm-compressor from its source.

RECIPE_VERSION of onboarding.text_generation.checkpoint_key is raised with every change that gives
other bytes.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import shutil
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from engine_build.errors import BuildError, InputRefused, SourceFault, one_line
from engine_build.log import Log
from engine_build.machine import return_memory
from engine_build.store import LARGEST_OBJECT_BYTES
from engine_build.text_generation.language_model import LanguageModel, sample_tokens
from engine_build.text_generation.source import FetchedSource, copy_served
from onboarding.text_generation.checkpoint import (
    FLOATS,
    INDEX,
    SINGLE,
    Checkpoint,
    TensorHeader,
    shard_names,
)
from onboarding.text_generation.texts import TextsError, read_texts
from onboarding.text_generation.weights import is_linear

SMOOTHING_STRENGTH = 0.8
"""Share of an outlier that moves from activations into weights (SmoothQuant, section 4)."""
GROUP_SIZES = {
    **dict.fromkeys(("awq", "gptq"), (128, 64, 32)),
    "w4a8-fp8": (128,),
    "nvfp4": (16,),
    **dict.fromkeys(("mxfp4", "mxfp8"), (32,)),
}
"""Weights of a group by scheme, the cheapest first: those that vLLM's kernels take."""
KV_FP8 = {
    "num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True,
}  # fmt: skip
"""One scale a layer for keys and one for values, which vLLM reads as k_scale and v_scale."""
TOKEN_FP8 = {
    "num_bits": 8, "type": "float", "strategy": "token", "dynamic": True, "symmetric": True,
}  # fmt: skip
PACKED = "pack-quantized"
"""How vLLM reads INT4 weights beside FP8 activations; compressed-tensors would write INT8."""
OUTPUT_LAYER = "lm_head"
PRESETS = {"nvfp4": "NVFP4", "mxfp4": "MXFP4", "mxfp8": "MXFP8"}
CALIBRATED = frozenset({"int8", "awq", "gptq", "nvfp4", "w4a8-fp8", "fp8-static"})


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One number format of one checkpoint.

    `kv_scales`: scales of an FP8 KV cache are calibrated and stored.
    """

    scheme: str
    static_activations: bool = False
    kv_scales: bool = False
    group_size: int | None = None

    @property
    def is_calibrated(self) -> bool:
        """True where texts go through the model to make it."""
        return self.scheme in CALIBRATED or self.static_activations or self.kv_scales


def recipe_of(
    scheme: str, kv_cache: str, *, has_texts: bool, tensors: Mapping[str, TensorHeader]
) -> Recipe:
    """Return the recipe of a scheme for a checkpoint's tensors.

    FP8 is static, with KV scales, where the KV cache is FP8 and there are texts to calibrate with;
    without them activations are scaled as they come. Raises InputRefused for layers that the
    format's groups do not divide.
    """
    scales = kv_cache == "fp8" and has_texts
    columns = {t.shape[-1] for name, t in tensors.items() if is_linear(name, t)}
    sizes = GROUP_SIZES.get(scheme, ())
    group = next((size for size in sizes if not any(c % size for c in columns)), None)
    if group is None and sizes:
        odd = next(size for size in sorted(columns) if size % sizes[-1])
        raise InputRefused(
            f"{scheme} stores groups of {sizes[-1]} weights, which do not divide a "
            f"layer of {odd} columns; choose fp8 or int8."
        )
    return Recipe(
        scheme=scheme,
        static_activations=scheme == "fp8" and scales,
        kv_scales=scales,
        group_size=group,
    )


def modifiers(recipe: Recipe) -> Sequence[Any]:
    """Return llm-compressor's modifiers of a recipe, in the order in which they run."""
    from llmcompressor.modifiers.gptq import GPTQModifier
    from llmcompressor.modifiers.quantization import QuantizationModifier
    from llmcompressor.modifiers.transform.awq import AWQModifier
    from llmcompressor.modifiers.transform.smoothquant import SmoothQuantModifier

    options: dict[str, Any] = {"ignore": [OUTPUT_LAYER]}
    if recipe.kv_scales:
        options["kv_cache_scheme"] = dict(KV_FP8)
    if recipe.scheme == "int8":
        smooth = SmoothQuantModifier(smoothing_strength=SMOOTHING_STRENGTH)
        return (smooth, QuantizationModifier(scheme="W8A8", targets="Linear", **options))
    if recipe.scheme == "gptq":
        return (GPTQModifier(config_groups=_groups(recipe), **options),)
    if recipe.scheme == "w4a8-fp8":
        return (GPTQModifier(config_groups=_groups(recipe, TOKEN_FP8, PACKED), **options),)
    if recipe.scheme == "awq":
        quantize = QuantizationModifier(config_groups=_groups(recipe), **options)
        return (AWQModifier(), quantize)
    if recipe.scheme == "fp8":
        name = "FP8" if recipe.static_activations else "FP8_DYNAMIC"
        return (QuantizationModifier(scheme=name, targets="Linear", **options),)
    preset = PRESETS[recipe.scheme]
    return (QuantizationModifier(scheme=preset, targets="Linear", **options),)


def _groups(
    recipe: Recipe, activations: Mapping[str, Any] | None = None, form: str | None = None
) -> dict[str, Any]:
    """Return symmetric INT4 weights in groups; None: activations in 16 bits, any form of files."""
    weights = {
        "num_bits": 4, "type": "int", "strategy": "group", "group_size": recipe.group_size,
        "symmetric": True, "dynamic": False,
    }  # fmt: skip
    group = {"targets": ["Linear"], "weights": weights, "format": form}
    if activations is not None:
        group["input_activations"] = dict(activations)
    return {"group_0": group}


WEIGHTS = "*.safetensors*"
LONGEST_SAMPLE = 2048
"""Tokens; llm-compressor's examples use as many."""
LEAST_TOKENS = 2
LARGEST_SHARD_BYTES = 4 * 1000**3
NAMES = {"bf16": "bfloat16", "fp16": "float16"}
"""PyTorch's name of each scheme that computes nothing."""
HEADERS = {"bf16": "BF16", "fp16": "F16"}


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """The first samples of a file; of each the first tokens."""

    path: Path
    samples: int
    most_tokens: int = LONGEST_SAMPLE

    def token_lists(self, tokenizer: Any) -> Iterator[list[int]]:
        """Yield the tokens of each sample. Raises InputRefused and SourceFault."""
        try:
            for sample in read_texts(self.path, self.samples):
                tokens = sample_tokens(tokenizer, sample, self.most_tokens)
                if len(tokens) >= LEAST_TOKENS:
                    yield tokens
        except TextsError as error:
            raise InputRefused(f"calibration texts {self.path.name}: {error}.") from error

    def loader(self, tokenizer: Any) -> Any:
        """Return a DataLoader that reads the file anew each time; a batch is one sample.

        Raises InputRefused for a file without samples.
        """
        import torch
        from torch.utils.data import DataLoader, IterableDataset

        texts, count = self, sum(1 for _ in self.token_lists(tokenizer))
        if count == 0:
            raise InputRefused(f"calibration texts {self.path.name} hold no sample; add texts.")

        class TokenLists(IterableDataset):  # type: ignore[misc]
            def __len__(self) -> int:
                return count

            def __iter__(self) -> Iterator[dict[str, Any]]:
                for tokens in texts.token_lists(tokenizer):
                    ids = torch.tensor([tokens])
                    yield {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

        return DataLoader(TokenLists(), batch_size=None)


def copy_source(source: FetchedSource, scheme: str, folder: Path) -> None:
    """Write the source itself, its weights cast to 16 bits where they are of another type.

    Raises SourceFault.
    """
    copy_served(source, folder)
    if not needs_rewriting(source.folder, source.checkpoint, scheme):
        return
    for path in folder.glob(WEIGHTS):
        path.unlink()
    is_cast = not source.checkpoint.is_quantized
    rewrite_shards(source.folder, folder, scheme if is_cast else None)
    if is_cast:
        write_dtype(folder / "config.json", scheme)


def quantize(
    source: FetchedSource, recipe: Recipe, calibration: Calibration | None, folder: Path, log: Log
) -> None:
    """Write the source in a recipe's format.

    Tokenizer and chat template are the source's own files. Raises InputRefused and SourceFault.
    """
    if recipe.is_calibrated and calibration is None:
        raise InputRefused(f"{recipe.scheme} needs texts; add `calibration:` to quantization.")
    loaded = LanguageModel(source.folder, trusts_code=source.trusts_code)
    texts = None
    if recipe.is_calibrated and calibration is not None:
        most = min(calibration.most_tokens, loaded.positions)
        texts = replace(calibration, most_tokens=most).loader(loaded.tokenizer)
        log.line(f"  {len(texts.dataset)} calibration samples")
    try:
        with _quiet(log):
            _compress(loaded, recipe, texts, folder)
    except BuildError:
        raise
    except Exception as error:
        log.note(traceback.format_exc())
        raise InputRefused(
            f"llm-compressor cannot make {recipe.scheme} of this model ({one_line(error)}); choose "
            "another scheme."
        ) from error
    finally:
        del loaded
        return_memory()
    for name in source.file_names():
        if ".safetensors" not in name and name != "config.json":
            shutil.copyfile(source.folder / name, folder / name)


def _compress(loaded: LanguageModel, recipe: Recipe, texts: Any, folder: Path) -> None:
    import llmcompressor
    import torch
    from compressed_tensors.utils import patch_attr
    from llmcompressor.pipelines.cache import IntermediatesCache

    options: dict[str, Any] = {}
    if texts is not None:
        options = {"dataset": texts, "num_calibration_samples": len(texts.dataset)}
    with contextlib.ExitStack() as stack:
        if not torch.accelerator.is_available():
            # AWQ pins memory for a GPU, also where there is none (llm-compressor 0.14.0.1).
            stack.enter_context(patch_attr(IntermediatesCache, "pin_memory", lambda *_: None))
        llmcompressor.oneshot(
            model=loaded.model,
            tokenizer=loaded.tokenizer,
            recipe=list(modifiers(recipe)),
            shuffle_calibration_samples=False,
            **options,
        )
    folder.mkdir(parents=True, exist_ok=True)
    loaded.model.save_pretrained(
        str(folder), save_compressed=True, max_shard_size=LARGEST_SHARD_BYTES
    )
    # What llm-compressor notes for itself is no part of what is served.
    (folder / "recipe.yaml").unlink(missing_ok=True)


@contextlib.contextmanager
def _quiet(log: Log) -> Iterator[None]:
    """Send what llm-compressor prints, bars among it, to the log's file alone."""
    from loguru import logger

    output = io.StringIO()
    logger.remove()
    logger.add(output, level="INFO")
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(output),
            contextlib.redirect_stderr(output),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
        log.note("\n".join(line for line in output.getvalue().splitlines() if "\r" not in line))


def needs_rewriting(folder: Path, checkpoint: Checkpoint, scheme: str) -> bool:
    """Return True where tensors are of another type than the scheme's, or a file is too large.

    Weights that are quantized already keep their types.
    """
    if any((folder / name).stat().st_size > LARGEST_OBJECT_BYTES for name in shard_names(folder)):
        return True
    return not checkpoint.is_quantized and any(
        tensor.dtype in FLOATS and tensor.dtype != HEADERS.get(scheme, tensor.dtype)
        for tensor in checkpoint.tensors.values()
    )


def rewrite_shards(folder: Path, target: Path, scheme: str | None) -> None:
    """Write the tensors of a folder into `target`, floats cast to the scheme's 16 bits.

    None casts nothing. Raises SourceFault for numbers that FP16 does not hold.
    """
    from safetensors.torch import save_file

    places: dict[str, str] = {}
    parts, size, files = dict[str, Any](), 0, list[Path]()

    def write_part() -> None:
        path = target / f"part-{len(files)}.safetensors"
        save_file(parts, str(path), metadata={"format": "pt"})
        places.update(dict.fromkeys(parts, path.name))
        files.append(path)

    for name, tensor in _tensors(folder, scheme):
        if parts and size + tensor.nbytes > LARGEST_SHARD_BYTES:
            write_part()
            parts, size = {}, 0
        parts[name] = tensor
        size += tensor.nbytes
    write_part()
    if len(files) == 1:
        files[0].rename(target / SINGLE)
        return
    names = {
        file.name: f"model-{number:05}-of-{len(files):05}.safetensors"
        for number, file in enumerate(files, 1)
    }
    for file in files:
        file.rename(target / names[file.name])
    total = sum((target / name).stat().st_size for name in names.values())
    weight_map = {name: names[file] for name, file in sorted(places.items())}
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (target / INDEX).write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def write_dtype(path: Path, scheme: str) -> None:
    """Write the type of the weights into a config.json."""
    config = json.loads(path.read_text(encoding="utf-8"))
    keys = [key for key in ("dtype", "torch_dtype") if key in config] or ["dtype"]
    path.unlink()
    path.write_text(
        json.dumps({**config, **dict.fromkeys(keys, NAMES[scheme])}, indent=2) + "\n",
        encoding="utf-8",
    )


def _tensors(folder: Path, scheme: str | None) -> Iterator[tuple[str, Any]]:
    import torch
    from safetensors import safe_open

    kind = None if scheme is None else getattr(torch, NAMES[scheme])
    for file_name in shard_names(folder):
        with safe_open(folder / file_name, framework="pt") as file:
            for name in sorted(file.keys()):
                tensor = file.get_tensor(name)
                if kind is not None and tensor.is_floating_point():
                    tensor = tensor.to(kind)
                    if not bool(torch.isfinite(tensor).all()):
                        raise SourceFault(
                            f"tensor {name} holds numbers that {scheme} does not; choose bf16."
                        )
                yield name, tensor.contiguous()
