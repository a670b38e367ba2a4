"""One checkpoint in another number format, made by llm-compressor from its source."""

from __future__ import annotations

import contextlib
import io
import logging
import shutil
import traceback
import warnings
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from engine_build.errors import BuildError, InputRefused, one_line
from engine_build.log import Log
from engine_build.machine import return_memory
from engine_build.text_generation.calibration import Calibration
from engine_build.text_generation.language_model import LanguageModel
from engine_build.text_generation.recipe import Recipe, modifiers
from engine_build.text_generation.shards import (
    LARGEST_SHARD_BYTES,
    needs_rewriting,
    rewrite_shards,
    write_dtype,
)
from engine_build.text_generation.source import FetchedSource, copy_served

WEIGHTS = "*.safetensors*"


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
