"""Whole builds of private repositories: the secret opens them, and no output holds it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from contextlib import ExitStack

import yaml

from tests.unit.engine_build.places import COMMIT, hub, secrets_manager
from tests.unit.engine_build.stand_ins import ROOT
from tests.unit.engine_build.tiny import model, write_tree

TOKEN = "hf_WhoReadsThisHasLeakedIt"
HUB = "arn:aws:secretsmanager:us-east-1:000000000000:secret:hub-AbCdEf"
SPELLINGS = (TOKEN, base64.b64encode(TOKEN.encode()).decode().rstrip("="))


def build(folder, token, checkpoint):
    """Run a whole build of a private repository and its secret; return how it ended."""
    files = {path.name: path.read_bytes() for path in checkpoint.iterdir()}
    with ExitStack() as stack:
        hub_address, _ = stack.enter_context(hub(files, TOKEN))
        variables = {
            "AWS_ENDPOINT_URL_SECRETS_MANAGER": stack.enter_context(secrets_manager({HUB: token})),
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
        source = {"huggingface": f"owner/name@{COMMIT}"}
        root = write_tree(folder / "root", model(precision="fp32", source=source))
        environment = root / "environments/desk.yaml"
        spec = yaml.safe_load(environment.read_text())
        spec["source_secrets"] = {"huggingface": {"secret_arn": HUB}}
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


def test_private_source_is_built_and_its_secret_stands_nowhere(tmp_path, checkpoint):
    ended = build(tmp_path, TOKEN, checkpoint)
    assert ended.returncode == 0, ended.stderr.decode()
    assert json.loads(ended.stdout)["status"] == "built"
    assert (tmp_path / "store/engines").is_dir() and (tmp_path / "out/build.log").is_file()
    assert places_of_secrets(tmp_path) == []


def test_refused_secret_ends_in_a_sentence_that_does_not_hold_it(tmp_path, checkpoint):
    ended = build(tmp_path, f"{TOKEN}x", checkpoint)
    assert ended.returncode == 5
    assert "cannot be fetched" in json.loads(ended.stdout)["reason"]
    assert places_of_secrets(tmp_path) == []
