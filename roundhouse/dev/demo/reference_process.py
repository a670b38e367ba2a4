"""Embeds texts with the source model by transformers alone, not by the export that it judges.

The builder's environment runs it. Standard input: {"source": ..., "texts": [...]}; standard output:
one marked line with the vectors as JSON. Argument: a folder for the source.
"""

from __future__ import annotations

import json
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

MARK = "ROUNDHOUSE-REFERENCE "
"""Begins the one line that carries the answer, among whatever else the process prints."""
REGION = "us-east-1"
"""Of a bucket, should the source lie in one."""


def vectors(folder: Path, texts: list[str]) -> list[list[float]]:
    """Return what sentence-transformers computes: normalised means of the last hidden states."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    tokenizer: Any = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    model: Any = transformers.AutoModel.from_pretrained(
        str(folder), local_files_only=True, dtype=torch.float32
    ).eval()
    feed = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        hidden = model(**feed).last_hidden_state
        mask = feed["attention_mask"].unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * mask).sum(1) / mask.sum(1)
        rows: list[list[float]] = torch.nn.functional.normalize(mean, dim=1).tolist()
    return rows


def main() -> int:
    """Fetch the source, embed the texts and print the vectors; return the exit code."""
    from engine_build.errors import BuildError
    from engine_build.log import Log
    from engine_build.runner import Runner
    from engine_build.sources.network import fetch
    from engine_build.sources.source import FetchContext
    from engine_build.store import store_at
    from onboarding.source_spec import SourceSpec

    question, folder = json.load(sys.stdin), Path(sys.argv[1])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    runner = Runner(Log(sys.stderr))
    try:
        spec = SourceSpec.model_validate(question["source"])
        fetching = FetchContext(
            root=Path.cwd(),
            folder=folder,
            runner=runner,
            bucket=partial(store_at, region=REGION),
        )
        source = fetch(spec, fetching)
    except BuildError as error:
        print(error)
        return 1
    if source.is_file():
        print("The source is an ONNX file: there is no PyTorch model to compare with.")
        return 1
    print("\n" + MARK + json.dumps(vectors(source, question["texts"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
