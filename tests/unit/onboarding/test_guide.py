"""The endpoints that docs/endpoints.md shows are endpoints that `check` accepts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from onboarding.model_spec import EndpointSpec, JoinSpec
from onboarding.tree import read_tree
from tests.unit.onboarding.trees import tree_root

GUIDE = (Path(__file__).parents[3] / "docs" / "endpoints.md").read_text(encoding="utf-8")
SHOWN = [
    text
    for text in re.findall(r"(?<!-->\n)```yaml\n(.*?)```", GUIDE, flags=re.S)
    if re.search("^endpoint:", text, flags=re.M)
]
"""Endpoints as their owners write them; what follows a comment is generated."""
MODEL = """name: {name}
task: text-embedding
source: {{python_package: my-model==1.0.0}}
engine: {{precision: fp16, optimization_profiles: [{{batch: [1, 4, 8], sequence: [8, 16, 32]}}]}}
accuracy: {{dataset: models/data/validation.txt}}
"""


@pytest.mark.parametrize("shown", SHOWN)
def test_shown_endpoint_is_accepted(shown, tmp_path):
    own = "endpoint: {instance_type: ml.g5.xlarge}\n"
    files = (
        {"my-embedder": own, "my-embedder-b": shown} if "joins" in shown else {"my-embedder": shown}
    )
    changes = {
        f"models/{name}.yaml": MODEL.format(name=name) + endpoint
        for name, endpoint in files.items()
    }
    tree = read_tree(tree_root(tmp_path, changes))
    assert tree.faults == ()
    keys = yaml.safe_load(shown)["endpoint"]
    endpoint = tree.models[list(files)[-1]].endpoint
    assert isinstance(endpoint, JoinSpec if "joins" in keys else EndpointSpec)
    assert set(keys) == endpoint.model_fields_set
