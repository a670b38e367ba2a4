"""The command that serves vLLM: `python3 -m container.generation_front COMMAND...`.

`COMMAND...` is the engine's own, AWS's entry point. It gets a port of its own by SM_VLLM_PORT; this
process listens where SageMaker asks.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from container.server.process import end, prepare_process

prepare_process()

from container.generation_front.app import main

if __name__ == "__main__":
    end(main(sys.argv[1:]))
