"""The program `train` of a local image: our entry file, with /opt/ml somewhere else.

It runs as a script of the image's environment, with the standard library only.
"""

from __future__ import annotations

import argparse
import os
import runpy
import signal
import sys
from pathlib import Path


def main() -> None:
    """Runs the entry of a training job and ends with its exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("entry", type=Path, help="the file")
    parser.add_argument("--ml", type=Path, required=True, help="what stands for /opt/ml")
    parser.add_argument("--tree", type=Path, required=True, help="where a source is unpacked")
    arguments = parser.parse_args()
    entry = runpy.run_path(str(arguments.entry), run_name="train")
    signal.signal(signal.SIGTERM, entry["interrupt"])
    paths = entry["JobPaths"](ml=arguments.ml, tree=arguments.tree)
    sys.exit(entry["main"](paths, os.environ, sys.stdout, sys.stderr))


if __name__ == "__main__":
    main()
