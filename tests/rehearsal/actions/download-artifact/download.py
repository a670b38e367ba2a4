"""Unpacks an artifact into the workspace."""

import io
import json
import os
import urllib.request
import zipfile
from pathlib import Path


def read(url, token):
    headers = {"Authorization": f"Bearer {token}"}
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=30) as reply:
        return reply.read()


name, token = os.environ["NAME"], os.environ["TOKEN"]
if token:
    repository = f"{os.environ['GITHUB_API_URL']}/repos/{os.environ['GITHUB_REPOSITORY']}"
    run = f"{repository}/actions/runs/{os.environ['RUN']}"
    (artifact,) = json.loads(read(f"{run}/artifacts?name={name}", token))["artifacts"]
    content = read(f"{repository}/actions/artifacts/{artifact['id']}/zip", token)
else:
    url = f"{os.environ['ACTIONS_RESULTS_URL']}/artifacts/{name}"
    content = read(url, os.environ["ACTIONS_RUNTIME_TOKEN"])
folder = Path(os.environ["GITHUB_WORKSPACE"]) / os.environ["FOLDER"]
with zipfile.ZipFile(io.BytesIO(content)) as archive:
    archive.extractall(folder)
