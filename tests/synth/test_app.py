"""app.py as the cdk command line runs it, and what it writes by the context."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys

import pytest

from roundhouse.cdk_app import add_environments, create_app
from tests.fixtures.many_models import ManyModels, many_models
from tests.synth.assembly import read_stacks
from tests.synth.deployments import ROOT

pytestmark = pytest.mark.synth


@pytest.fixture
def run_app(outdir):
    """Runs app.py as the cdk command line does, which hands it folder and context over."""
    hidden = ("JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION", "PYTHONDONTWRITEBYTECODE")
    inherited = {name: value for name, value in os.environ.items() if name not in hidden}

    def run(*arguments, path=None, **context):
        own = {"CDK_OUTDIR": str(outdir), "CDK_CONTEXT_JSON": json.dumps(context)}
        environ = {**inherited, **own, **({} if path is None else {"PATH": path})}
        command = (sys.executable, str(ROOT / "app.py"), *arguments)
        return subprocess.run(
            command, env=environ, cwd=outdir, capture_output=True, text=True, check=False
        )

    return run


@pytest.fixture
def refusal(outdir):
    """What app.py ends with where a context makes it write nothing."""

    def run(**context):
        with pytest.raises(SystemExit) as end:
            synthesize(outdir, context)
        assert list(outdir.iterdir()) == []
        return str(end.value)

    return run


def synthesize(outdir, context):
    app = create_app((), outdir=str(outdir), context=context)
    add_environments(app)
    app.synth()


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


def test_app_hangs_one_stage_for_the_named_environment_and_says_what_is_not_built(run_app, outdir):
    result = run_app(env="dev")
    assert (result.returncode, result.stdout) == (0, "")
    endpoints = ["Endpoint-sentence-embedder", "Endpoint-text-shared"]
    for name in endpoints:
        assert f"dev/{name} cannot be deployed: " in result.stderr
    lines = result.stderr.splitlines()
    assert lines and all("roundhouse build --env dev" in line for line in lines)
    assert [folder.name for folder in outdir.glob("assembly-*")] == ["assembly-dev"]
    names = [stack.name for stack in read_stacks(outdir)]
    assert sorted(names) == ["Builds", *endpoints, "Foundation", "Images", "Observability"]
    tree = json.loads((outdir / "tree.json").read_text(encoding="utf-8"))["tree"]
    assert "dev" in tree["children"]


@pytest.fixture(scope="module")
def three_models(tmp_path_factory):
    """Three models with an endpoint and a lock each, and what dev deploys of them."""
    folder = tmp_path_factory.mktemp("shared")
    many = many_models(ROOT, folder / "many", 3, environment="dev")
    return many, artifacts(many, folder / "out")


@pytest.fixture
def many(three_models, tmp_path):
    """The same models, to change."""
    shutil.copytree(three_models[0].root, tmp_path / "many")
    return dataclasses.replace(three_models[0], root=tmp_path / "many")


def artifacts(many: ManyModels, outdir, **context):
    """By stack: what the manifest says of it, and its template."""
    context = {"env": "dev", "root": str(many.root), **context}
    synthesize(outdir, context)
    manifest = json.loads((outdir / "assembly-dev" / "manifest.json").read_text(encoding="utf-8"))[
        "artifacts"
    ]
    stacks = {
        item["displayName"].split("/")[-1]: item
        for item in manifest.values()
        if item["type"] == "aws:cloudformation:stack"
    }
    return {stack.name: (stacks[stack.name], stack.template) for stack in read_stacks(outdir)}


def test_named_endpoints_are_as_among_all_with_what_they_depend_on(three_models, outdir):
    many, whole = three_models
    chosen = artifacts(many, outdir, endpoint="model-003,model-001")
    assert sorted(chosen) == ["Endpoint-model-001", "Endpoint-model-003", "Foundation"]
    assert chosen == {name: whole[name] for name in chosen}
    assert "devFoundation" in str(chosen["Endpoint-model-003"][0]["dependencies"])


def test_a_change_of_one_endpoint_changes_its_template_alone(three_models, many, outdir):
    _, before = three_models
    many.change("model-002", {"accuracy": {"budget": {"worst": 0.94}}})
    changed = artifacts(many, outdir)
    assert [name for name in before if changed[name] != before[name]] == ["Endpoint-model-002"]
    assert changed.keys() == before.keys()


def test_refuses_an_unknown_endpoint_in_one_sentence_with_the_nearest(many, refusal):
    assert refusal(env="dev", root=str(many.root), endpoint="model-01") == (
        "models: unknown endpoint, given model-01; allowed: model-001, model-002, model-003; did"
        " you mean 'model-001'?"
    )


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
            "context key evn: is not read here; allowed: env, endpoint, root, and keys of your"
            " own that resemble none; did you mean 'env'?",
        ),
        (
            {"environment": "dev"},
            (
                "context key environment: is not read here; allowed: env, endpoint, root, and keys"
                " of your own that resemble none; did you mean 'env'?"
            ),
        ),
        ({"endpoints": "text-shared"}, "did you mean 'endpoint'?"),
        ({"env": ""}, "an empty environment name; allowed: dev, local; name one of these."),
        (
            {"env": "dev", "endpoint": ""},
            "an empty endpoint name; allowed: sentence-embedder, text-shared; name one of these.",
        ),
        ({"env": "dev", "endpoint": "text-shared,"}, "an empty endpoint name"),
        ({"root": ""}, "context key root: is no folder, given nothing"),
        ({"root": "/nowhere"}, "context key root: is no folder, given /nowhere"),
        ({"env": "devv"}, "did you mean 'dev'?"),
    ],
    ids=str,
)
def test_refuses_context_that_would_choose_something_else(refusal, context, message):
    error = refusal(**context)
    assert message in error
    assert len(error.splitlines()) == 1


def test_context_of_the_cdk_command_line_and_of_the_user_is_none_of_ours(outdir):
    own = {
        "myteam": "1",
        "rootVolume": "2",
        "aws:cdk:enable-path-metadata": "true",
        "@aws-cdk/core:newStyleStackSynthesis": "true",
        "cdk-migrate": "true",
    }
    kept = {
        "acknowledged-issue-numbers": "1",
        "cli-telemetry": "false",
        "ssm:account=1:parameterName=/a:region=x": "y",
    }
    synthesize(outdir, {"env": " dev", **own, **kept})
    assert [folder.name for folder in outdir.glob("assembly-*")] == ["assembly-dev"]


def test_refuses_to_run_without_node(run_app, tmp_path):
    result = run_app(path=str(tmp_path), env="dev")
    assert (result.returncode, result.stderr) == (
        1,
        "app.py needs Node.js, which is not on PATH; install version 20 or later.\n",
    )
