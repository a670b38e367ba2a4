"""Unpacks an artifact into the workspace."""

import io
import os
import urllib.request
import zipfile
from pathlib import Path

token = os.environ["TOKEN"] or os.environ["ACTIONS_RUNTIME_TOKEN"]
request = urllib.request.Request(
    f"{os.environ['ACTIONS_RESULTS_URL']}/artifacts/{os.environ['RUN']}/{os.environ['NAME']}",
    headers={"Authorization": f"Bearer {token}"},
)
with urllib.request.urlopen(request, timeout=30) as reply:
    content = reply.read()
folder = Path(os.environ["GITHUB_WORKSPACE"]) / os.environ["FOLDER"]
with zipfile.ZipFile(io.BytesIO(content)) as archive:
    archive.extractall(folder)
