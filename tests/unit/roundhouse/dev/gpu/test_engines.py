"""The tree for the GPU of a machine, and what a build of it says."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from onboarding.platform import instance_types, serving_platforms
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from roundhouse.dev.gpu.engines import LOCAL_GPU, Builds, write_tree
from roundhouse.dev.gpu.servers import serving
from roundhouse.errors import BuildFailedError, NotReadyError
from roundhouse.processes import Outcome

ROOT = Path(__file__).parents[5]


def tree_for(folder, instance_type, **options):
    write_tree(
        ROOT,
        folder,
        platform=serving_platforms()["triton-24.11"],
        instance_type=instance_types()[instance_type],
        **options,
    )
    tree = read_tree(folder)
    assert tree.faults == ()
    return {
        target.model.name: target
        for deployment in deployments(tree, LOCAL_GPU)
        for target in deployment.targets
    }


def test_a_tree_serves_the_same_model_files_on_the_gpu_that_is_there(tmp_path):
    targets = tree_for(tmp_path, "ml.p5.4xlarge")
    assert set(targets) == {path.stem for path in (ROOT / "models").glob("*.yaml")}
    for target in targets.values():
        assert (target.instance_type.gpu, target.plan_gpu) == ("H100", "H100")


def test_a_gpu_of_no_instance_type_gets_plans_of_its_generation(tmp_path):
    targets = tree_for(tmp_path, "ml.g6.xlarge", is_exact=False)
    assert {target.plan_gpu for target in targets.values()} == {None}


def test_refuses_what_the_build_refuses_in_its_words(tmp_path):
    def run(command, on_line=None):
        answer = {"status": "failed", "reason": "trtexec is not there", "log": "build.log"}
        return Outcome(code=1, output=f"check: …\n{json.dumps(answer)}\n")

    with pytest.raises(BuildFailedError, match=r"^m: trtexec is not there \(log: build.log\)$"):
        Builds(
            tree=tmp_path,
            store=tmp_path,
            work=tmp_path,
            python=sys.executable,
            code=ROOT,
            variables={},
            run=run,
        ).build("m")


def test_refuses_an_archive_that_the_server_refuses_in_its_words(tmp_path):
    python, variables = f"{ROOT}/.venvs/server/bin/python", {"PYTHONPATH": f"{ROOT}"}
    with (
        pytest.raises(NotReadyError, match=r"ended with 3: Refused: manifest.json is missing"),
        serving(tmp_path, "m", python=python, variables=variables),
    ):
        pass
