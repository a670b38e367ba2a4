"""The archive of a random checkpoint, built whole as a PyTorch program, and the source's answers.

`.venvs/builder/bin/python -m tests.contract.baseline_archives FOLDER` writes the folders `pytorch`
and `pytorch-compile`, which differ in the manifest's runtime, texts.json and vectors.npy.
"""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
from pathlib import Path

COUNT, SEED, LONGEST = 30, 5, 16


def main(root: Path) -> None:
    """Build the archive, by the code of a real build."""
    import numpy as np

    from engine_build.build import build
    from engine_build.datasets.text import TextEncoder, save_padded
    from engine_build.sources.source_model import SourceModel
    from tests.unit.engine_build.stand_ins import StandInRunner, context
    from tests.unit.engine_build.tiny import (
        model,
        sample_texts,
        write_checkpoint,
        write_tree,
        write_wheel,
    )

    checkpoint = write_checkpoint(root / "checkpoint", layers=1)
    (root / "wheels").mkdir()
    wheel = write_wheel(checkpoint, root / "wheels")
    serving = {"server": "python", "runtime": "pytorch"}
    tree = write_tree(root / "root", model("tiny", "fp32", serving=serving))
    tools = context(tree, root / "out", store=None, runner=StandInRunner(wheel))
    with tools.work:
        packed = tools.work.store.path(build(tools).entry.archive.path)
    archive = root / "pytorch"
    with tarfile.open(packed) as tar:
        tar.extractall(archive, filter="data")
    compiled = Path(shutil.copytree(archive, root / "pytorch-compile")) / "manifest.json"
    manifest = json.loads(compiled.read_text())
    manifest["runtime"]["name"] = "pytorch-compile"
    compiled.write_text(json.dumps(manifest))
    texts = sample_texts(COUNT, seed=SEED)
    source = SourceModel(checkpoint, longest=LONGEST)
    tokenizer = save_padded(source.tokenizer, root, source.padding)
    encoder = TextEncoder(tokenizer, inputs=source.inputs, longest=LONGEST)
    # One text a run, without any padding.
    vectors = np.concatenate([source.rows(encoder.feed([text])) for text in texts])
    np.save(root / "vectors.npy", vectors)
    (root / "texts.json").write_text(json.dumps(texts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
