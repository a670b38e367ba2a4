"""Archives of one random checkpoint, built whole for runtimes of a CPU, and the source's answers.

`.venvs/builder/bin/python -m tests.contract.baseline_archives FOLDER RUNTIME…` writes a folder
`archive` of each, texts.json and vectors.npy.
"""

from __future__ import annotations

import json
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path

COUNT, SEED, LONGEST = 30, 5, 16


def main(root: Path, runtimes: Sequence[str]) -> None:
    """Build every archive, by the code of a real build."""
    import numpy as np

    from engine_build.build import build
    from engine_build.datasets.text import TextEncoder
    from engine_build.sources.source_model import SourceModel
    from tests.unit.engine_build.stand_ins import StandInRunner, context
    from tests.unit.engine_build.tiny import (
        model,
        sample_texts,
        write_checkpoint,
        write_tree,
        write_wheel,
    )

    checkpoint = write_checkpoint(root / "checkpoint")
    (root / "wheels").mkdir()
    wheel = write_wheel(checkpoint, root / "wheels")
    for runtime in runtimes:
        folder = root / runtime
        serving = {"server": "python", "runtime": runtime}
        tree = write_tree(folder / "root", model("tiny", "fp32", serving=serving))
        tools = context(tree, folder / "out", store=None, runner=StandInRunner(wheel))
        with tools.work:
            entry = build(tools).entry
            packed = tools.work_store.path(entry.archive.path)
        with tarfile.open(packed) as tar:
            tar.extractall(folder / "archive", filter="data")
    texts = sample_texts(COUNT, seed=SEED)
    source = SourceModel(checkpoint, longest=LONGEST)
    encoder = TextEncoder(source.save_tokenizer(root), inputs=source.inputs, longest=LONGEST)
    # One text a run, without any padding.
    vectors = np.concatenate([source.rows(encoder.feed([text])) for text in texts])
    np.save(root / "vectors.npy", vectors)
    (root / "texts.json").write_text(json.dumps(texts))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
