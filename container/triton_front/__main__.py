"""The command that serves Triton: `python3 -I container/triton_front/__main__.py COMMAND...`.

`COMMAND...` is tritonserver's own. Its SageMaker port becomes one that only this process asks;
this process listens where SageMaker asks.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from container.server.process import bound_free_memory, end, prepare_process

prepare_process()
bound_free_memory()

from container.triton_front.server import main

if __name__ == "__main__":
    end(main(sys.argv[1:]))
