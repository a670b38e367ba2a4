"""Keeps a file or folder of the workspace as an artifact of this run."""

import io
import os
import sys
import urllib.request
import zipfile
from pathlib import Path

workspace = Path(os.environ["GITHUB_WORKSPACE"])
path = workspace / os.environ["FILES"]
files = [path] if path.is_file() else sorted(item for item in path.rglob("*") if item.is_file())
if not files:
    print(f"No files were found with the provided path: {path}")
    sys.exit(os.environ["ABSENT"] == "error")
content = io.BytesIO()
with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
    for file in files:
        archive.write(file, file.name if path.is_file() else file.relative_to(path))
request = urllib.request.Request(
    f"{os.environ['ACTIONS_RESULTS_URL']}/artifacts/{os.environ['RUN']}/{os.environ['NAME']}",
    data=content.getvalue(),
    headers={"Authorization": f"Bearer {os.environ['ACTIONS_RUNTIME_TOKEN']}"},
)
urllib.request.urlopen(request, timeout=30).close()
