"""Random embedders that sentence-transformers saves, exported as a build does, and its `encode()`.

`.venvs/builder/bin/python -m tests.contract.embedder_archives FOLDER` writes a folder of each:
model.onnx, tokenizer.json, prompts.json, vectors.npy.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

NAMES = ("mean", "mean-normalize", "cls", "max-normalize", "lasttoken", "cls+mean-dense-normalize")
PROMPT = "find a blue train : "
SEED, COUNT, LONGEST = 3, 200, 32


def modules(name: str) -> list[Any]:
    """The modules after the encoder, as a name lists them."""
    from sentence_transformers.base.modules import Normalize

    from tests.unit.engine_build.embedders import dense, pooling
    from tests.unit.engine_build.tiny import WIDTH

    modes, *heads = name.split("-")
    width = WIDTH * len(modes.split("+"))
    made = {"normalize": Normalize, "dense": lambda: dense(width)}
    return [pooling(*modes.split("+")), *(made[head]() for head in heads)]


def main(root: Path) -> None:
    """Write every embedder; the last one has a default prompt."""
    import numpy as np
    from sentence_transformers import SentenceTransformer

    from engine_build.sources.export import export
    from engine_build.sources.source_model import SourceModel
    from tests.unit.engine_build.embedders import write_embedder
    from tests.unit.engine_build.tiny import sample_texts, write_checkpoint

    texts = sample_texts(COUNT, seed=SEED)
    checkpoint = write_checkpoint(root / "checkpoint")
    for name in NAMES:
        prompts: dict[str, Any] = {}
        if name == NAMES[-1]:
            prompts = {"prompts": {"query": PROMPT}, "default_prompt_name": "query"}
        saved = write_embedder(root / name / "saved", checkpoint, *modules(name), **prompts)
        export(SourceModel(saved, longest=LONGEST), texts[:30], root / name, longest=LONGEST)
        vectors = SentenceTransformer(str(saved), device="cpu").encode(texts)
        np.save(root / name / "vectors.npy", vectors)
    (root / "texts.json").write_text(json.dumps(texts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
