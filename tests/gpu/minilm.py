"""MiniLM's model files in each precision: what the CPU stage makes networks of, and rows build.

`python -m tests.gpu.minilm STORE` is that CPU stage: no GPU; networks, and the demo's vectors.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import yaml

from onboarding.names import NETWORKS_PREFIX
from onboarding.platform import InstanceType, ServingPlatform, instance_types, serving_platforms
from roundhouse import settings
from roundhouse.dev.demo.answers import TEXTS
from roundhouse.dev.demo.gpu_demo import local_session
from roundhouse.dev.demo.reference_vectors import reference_vectors
from roundhouse.dev.gpu.engines import Builds, write_tree
from roundhouse.dev.gpu.machine import DEFAULT_PLATFORM, python_variables
from roundhouse.paths import Paths
from roundhouse.processes import Processes
from roundhouse.report import open_report

ROOT = Path(__file__).resolve().parents[2]
PATHS = Paths(code=ROOT, tree=ROOT, build=ROOT / "build")
FOLDER = ROOT / "build" / "gpu"
STORE, WORK = FOLDER / "store", FOLDER / "work"
H100 = "ml.p5.4xlarge"


def minilm_tree(
    precision: str,
    platform: ServingPlatform,
    instance_type: InstanceType,
    *,
    is_exact: bool = True,
) -> Path:
    """Write the tree of models/sentence-embedder.yaml in a precision, for a GPU, and return it."""
    model = yaml.safe_load((ROOT / "models" / "sentence-embedder.yaml").read_text("utf-8"))
    model["name"], model["engine"]["precision"] = f"minilm-{precision}", precision
    if precision == "fp8":
        # The search is INT8's; the row's bar is below the file's budget.
        del model["engine"]["sensitivity_search"]
        model["accuracy"]["budget"] = {"mean": 0.997, "worst": 0.985, "neighbours": 0.92}
    return write_tree(
        ROOT,
        FOLDER / f"tree-{precision}",
        platform=platform,
        instance_type=instance_type,
        is_exact=is_exact,
        models={model["name"]: model},
    )


def variables() -> dict[str, str]:
    return python_variables(PATHS, settings.inherited())


def builds(tree: Path, store: Path, python: str, **more: str) -> Builds:
    """Return the builds of a tree, which share plans and timing cache."""
    return Builds(
        tree=tree,
        store=store,
        work=WORK,
        python=python,
        code=ROOT,
        variables=variables() | more,
        run=Processes(),
    )


def main(store: Path) -> None:
    """Make the networks of every row and of `roundhouse demo --gpu` on this CPU, and no others."""
    platform, instance_type = serving_platforms()[DEFAULT_PLATFORM], instance_types()[H100]
    own = minilm_tree("auto", platform, instance_type)
    demo = write_tree(ROOT, FOLDER / "demo-tree", platform=platform, instance_type=instance_type)
    keys: frozenset[str] = frozenset()
    names = sorted(path.stem for path in (demo / "models").glob("*.yaml"))
    for tree, model in ((own, "minilm-auto"), *((demo, name) for name in names)):
        print(f"networks of {model}", flush=True)
        keys |= builds(tree, store, str(PATHS.builder_python)).make_networks(model)
    for folder in (store / NETWORKS_PREFIX).iterdir():
        if folder.name not in keys:
            shutil.rmtree(folder)
    processes = Processes()
    session = local_session(PATHS, demo, open_report(), processes, variables())
    with reference_vectors(session, TEXTS, processes.stop) as vectors_of:
        vectors_of()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
