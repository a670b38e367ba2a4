"""The replacement that a page shows step by step, and the text generator of another: no faults."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from onboarding.generation_resolve import generation_plans
from onboarding.resolve import deployments
from onboarding.tree import read_tree
from tests.unit.onboarding.text_generation.shapes import SHAPES
from tests.unit.onboarding.trees import tree_root

pytestmark = pytest.mark.docs

DOCS = Path(__file__).resolve().parents[2] / "docs"
BLOCK = re.compile(r"```yaml\n# (models/[\w-]+\.yaml)(?:, phase (\d))?\n(.*?)```", re.DOTALL)
ENGINE, TEXT = "onboarding.md", "text-generation.md"


def phase(page: str, number: int) -> dict[str, str]:
    """Return the files of a phase: those of the phases before it, with its own keys over them.

    A file without a task begins as the page's first one.
    """
    files: dict[str, dict] = {}
    for name, text, content in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")):
        if int(text or 0) <= number:
            document = yaml.safe_load(content)
            base = files.get(name) or next(iter(files.values()), {})
            files[name] = document if "task" in document else {**base, **document}
    return {name: yaml.safe_dump(document) for name, document in files.items()}


def tree(folder: Path, files: dict[str, str]):
    headers = {"models/data/8b.json": SHAPES["8b"].document()}
    return read_tree(tree_root(folder, {**headers, **files}))


@pytest.mark.parametrize(
    ("number", "variants"),
    [
        (0, [("production", "shop-search", 1.0)]),
        (1, [("production", "shop-search", 1.0), ("shadow", "shop-search-trt", 0.1)]),
        (2, [("production", "shop-search", 0.9), ("production", "shop-search-trt", 0.1)]),
    ],
)
def test_phases_of_an_engine_are_variants_of_one_endpoint(number, variants, tmp_path):
    found = tree(tmp_path, phase(ENGINE, number))
    assert found.faults == ()
    (deployment,) = deployments(found, "cloud", ["shop-search"])
    shown = [
        ("shadow" if variant.role == "shadow" else "production", variant.targets[0].model.name,
         variant.weight)
        for variant in deployment.variants
    ]  # fmt: skip
    assert shown == variants


def test_last_phase_of_an_engine_is_one_file(tmp_path):
    files = phase(ENGINE, 4)
    del files["models/shop-search-trt.yaml"]
    found = tree(tmp_path, files)
    assert found.faults == ()
    (deployment,) = deployments(found, "cloud", ["shop-search"])
    assert [target.model.engine.precision for target in deployment.targets] == ["fp16"]


def test_the_file_of_a_text_generator_is_planned_as_its_page_says(tmp_path):
    found = tree(tmp_path, phase(TEXT, 0))
    assert found.faults == ()
    (plan,) = generation_plans(found, "cloud")
    assert (plan.chosen.instance_type, plan.chosen.scheme) == ("ml.g5.2xlarge", "bf16")
