"""A model of 330 million parameters through export, quantization and compile check.

Does it fit the memory?
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping

from benchmarks.engine_build import build
from benchmarks.measure import Bar, Measure
from benchmarks.trees import sha256, tree_with
from roundhouse.paths import Paths
from roundhouse.processes import Command, Processes

PACKAGE = "random-bert-large"
VERSION = "1.0"
LIMIT_MIB = 12 * 1024


def bert_large(at: Paths, run: Processes, variables: Mapping[str, str]) -> list[Measure]:
    """Peak memory and seconds. Raises ValueError when a step fails."""
    place = at.build / "bench" / "bert_large"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    wheel = place / "wheels" / f"{PACKAGE.replace('-', '_')}-{VERSION}-py3-none-any.whl"
    making = Command(
        argv=(
            str(at.venv_python("builder")),
            "-m",
            "tests.fixtures.random_checkpoint",
            "bert-large",
            str(wheel),
        ),
        folder=at.code,
        environment=dict(variables),
    )
    outcome = run(making, print)
    if outcome.code != 0:
        raise ValueError(f"{making} failed: {outcome.last_lines()}")
    source = {"python_package": f"{PACKAGE}=={VERSION}", "path": "model", "sha256": sha256(wheel)}
    changes = {
        "source": source,
        "engine": {
            "precision": "int8",
            "sensitivity_search": None,
            "optimization_profiles": [{"batch": [1, 8, 32], "sequence": [8, 64, 128]}],
        },
    }
    tree = tree_with(at.tree, place / "tree", changes)
    offline = {**variables, "PIP_FIND_LINKS": str(wheel.parent), "PIP_NO_INDEX": "1"}
    done = build(at, run, offline, tree, place / "networks", more=("--networks-only",))
    command = (
        "engine_build --networks-only of a BERT-large with random weights, precision int8, "
        "calibration of 256 samples"
    )
    shutil.rmtree(place, ignore_errors=True)
    return [
        Measure(
            name="BERT-large: peak memory of export, quantization, compile check",
            value=done.taken.peak_mib,
            unit="MiB",
            command=command,
            bar=Bar(kind="at most", limit=LIMIT_MIB),
        ),
        Measure(name="BERT-large: seconds", value=done.taken.seconds, unit="s", command=command),
    ]
