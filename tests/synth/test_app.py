"""app.py as the cdk command line runs it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.scale.many_models import many_models
from tests.synth.assembly import read_stacks
from tests.synth.deployments import ROOT

pytestmark = pytest.mark.synth


@pytest.fixture
def run_app(outdir):
    """Runs app.py with a context, as `cdk synth -c` hands it over."""
    hidden = ("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "PYTHONDONTWRITEBYTECODE")
    inherited = {name: value for name, value in os.environ.items() if name not in hidden}

    def run(
        *arguments: str, path: str | None = None, into: Path = outdir, **context: str
    ) -> subprocess.CompletedProcess[str]:
        own = {
            "CDK_OUTDIR": str(into),
            "CDK_CONTEXT_JSON": json.dumps(context),
        }
        environ = {**inherited, **own} if path is None else {**inherited, **own, "PATH": path}
        command = (sys.executable, str(ROOT / "app.py"), *arguments)
        return subprocess.run(
            command, env=environ, cwd=outdir, capture_output=True, text=True, check=False
        )

    return run


@pytest.fixture
def tree(tmp_path):
    """An onboarding tree that lies elsewhere."""
    root = tmp_path / "tree"
    for folder in ("models", "endpoints", "environments"):
        shutil.copytree(ROOT / folder, root / folder)
    return root


@pytest.fixture
def outdir(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def test_app_hangs_one_stage_for_the_named_environment_in_silence(run_app, outdir):
    result = run_app(env="dev")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert [folder.name for folder in outdir.glob("assembly-*")] == ["assembly-dev"]
    names = [stack.name for stack in read_stacks(outdir)]
    endpoints = ["Endpoint-sentence-embedder", "Endpoint-text-shared"]
    assert sorted(names) == ["Builds", *endpoints, "Foundation", "Images", "Observability"]


def test_app_hangs_every_environment_of_another_root(run_app, tree, outdir):
    (tree / "environments" / "local.yaml").rename(tree / "environments" / "desk.yaml")
    text = (
        (tree / "environments" / "desk.yaml")
        .read_text(encoding="utf-8")
        .replace("name: local", "name: desk")
    )
    (tree / "environments" / "desk.yaml").write_text(text, encoding="utf-8")
    result = run_app(root=str(tree))
    assert (result.returncode, result.stderr) == (0, "")
    assert sorted(folder.name for folder in outdir.glob("assembly-*")) == [
        "assembly-desk",
        "assembly-dev",
    ]


@pytest.fixture
def many(tmp_path):
    """Three models with an endpoint and a lock each."""
    return many_models(ROOT, tmp_path / "many", 3, environment="dev")


def artifacts(outdir):
    """By stack: what the manifest says of it, and its template."""
    manifest = json.loads((outdir / "assembly-dev" / "manifest.json").read_text(encoding="utf-8"))[
        "artifacts"
    ]
    stacks = {
        item["displayName"].split("/")[-1]: item
        for item in manifest.values()
        if item["type"] == "aws:cloudformation:stack"
    }
    return {stack.name: (stacks[stack.name], stack.template) for stack in read_stacks(outdir)}


def test_named_endpoints_are_synthesised_as_among_all_with_what_they_depend_on(
    run_app, many, outdir, tmp_path
):
    assert run_app(env="dev", root=str(many.root)).returncode == 0
    whole, some = artifacts(outdir), tmp_path / "some"
    result = run_app(env="dev", root=str(many.root), endpoint="model-003,model-001", into=some)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    chosen = artifacts(some)
    assert sorted(chosen) == ["Endpoint-model-001", "Endpoint-model-003", "Foundation"]
    assert chosen == {name: whole[name] for name in chosen}
    assert "devFoundation" in str(chosen["Endpoint-model-003"][0]["dependencies"])


def test_a_change_of_one_endpoint_changes_its_template_alone(run_app, many, outdir, tmp_path):
    assert run_app(env="dev", root=str(many.root)).returncode == 0
    before, after = artifacts(outdir), tmp_path / "after"
    many.change("model-002", {"accuracy": {"budget": {"worst": 0.94}}})
    assert run_app(env="dev", root=str(many.root), into=after).returncode == 0
    changed = artifacts(after)
    assert [name for name in before if changed[name] != before[name]] == ["Endpoint-model-002"]
    assert changed.keys() == before.keys()


def test_a_broken_lock_of_another_endpoint_does_not_stop_the_named_one(run_app, many, outdir):
    (many.root / "models" / "model-002.lock.yaml").write_text("no lock\n", encoding="utf-8")
    result = run_app(env="dev", root=str(many.root))
    assert result.returncode == 1 and "models/model-002.lock.yaml" in result.stderr
    assert run_app(env="dev", root=str(many.root), endpoint="model-001").returncode == 0


def test_refuses_an_unknown_endpoint_in_one_sentence_with_the_nearest(run_app, many, outdir):
    result = run_app(env="dev", root=str(many.root), endpoint="model-01")
    assert result.returncode == 1
    assert (
        result.stderr
        == "models: unknown endpoint, given model-01; allowed: model-001, model-002, model-003; did"
        " you mean 'model-001'?\n"
    )
    assert list(outdir.iterdir()) == []


def test_refuses_every_fault_at_once_without_a_traceback(run_app, tree, outdir):
    (tree / "models" / "sentence-embedder.yaml").write_text("name: [\n", encoding="utf-8")
    (tree / "environments" / "local.yaml").write_text("nmae: local\n", encoding="utf-8")
    result = run_app(root=str(tree))
    assert result.returncode == 1
    assert "models/sentence-embedder.yaml" in result.stderr
    assert "environments/local.yaml:1" in result.stderr
    assert "Traceback" not in result.stderr and list(outdir.iterdir()) == []


@pytest.mark.parametrize(
    ("context", "message"),
    [
        (
            {"evn": "dev"},
            "context key evn: is not read here; allowed: env, endpoint, root; did you mean 'env'?",
        ),
        (
            {"environment": "dev"},
            (
                "context key environment: is not read here; allowed: env, endpoint, root; did you"
                " mean 'env'?"
            ),
        ),
        ({"endpoints": "text-shared"}, "did you mean 'endpoint'?"),
        (
            {"model": "text-shared"},
            "context key model: is not read here; allowed: env, endpoint, root; take it out of",
        ),
        ({"env": ""}, "an empty environment name; allowed: dev, local; name one of these."),
        (
            {"env": "dev", "endpoint": ""},
            "an empty endpoint name; allowed: sentence-embedder, text-shared; name one of these.",
        ),
        ({"env": "dev", "endpoint": "text-shared,"}, "an empty endpoint name"),
        ({"root": ""}, "context key root: is no folder, given nothing"),
        ({"root": "/nowhere"}, "context key root: is no folder, given /nowhere"),
    ],
    ids=str,
)
def test_refuses_context_that_would_choose_something_else(run_app, outdir, context, message):
    result = run_app(**context)
    assert result.returncode == 1
    assert message in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert list(outdir.iterdir()) == []


def test_refuses_every_wrong_context_key_at_once(run_app):
    assert len(run_app(evn="dev", endpoints="x", root="/nowhere").stderr.splitlines()) == 3


def test_context_of_the_cdk_command_line_is_none_of_ours(run_app, outdir):
    own = {
        "aws:cdk:enable-path-metadata": "true",
        "@aws-cdk/core:newStyleStackSynthesis": "true",
        "cdk-migrate": "true",
    }
    kept = {
        "acknowledged-issue-numbers": "1",
        "cli-telemetry": "false",
        "ssm:account=1:parameterName=/a:region=x": "y",
    }
    result = run_app(env=" dev", **own, **kept)
    assert (result.returncode, result.stderr) == (0, "")
    assert [folder.name for folder in outdir.glob("assembly-*")] == ["assembly-dev"]


def test_refuses_an_unknown_environment_and_names_the_nearest(run_app):
    result = run_app(env="devv")
    assert result.returncode == 1
    assert "devv" in result.stderr and "did you mean 'dev'" in result.stderr
    assert "Traceback" not in result.stderr


def test_refuses_to_run_without_node(run_app, tmp_path):
    result = run_app(path=str(tmp_path), env="dev")
    assert (result.returncode, result.stderr) == (
        1,
        "app.py needs Node.js, which is not on PATH; install version 20 or later.\n",
    )


def test_refuses_an_argument_that_would_be_ignored(run_app):
    result = run_app("-c", "env=dev")
    assert result.returncode == 1 and "npx cdk synth -c env=dev" in result.stderr
