"""The command that starts a server: `python -m container.server [serve]`, or one before another.

`python3 -I container/server/__main__.py triton COMMAND...`, or `vllm COMMAND...`: COMMAND is the
server's behind, which gets a port that only this process asks.
"""

import os
import signal
import sys
from importlib import import_module
from pathlib import Path

# Importing the rest takes a third of a second: until the server listens for them, Ctrl-C ends it
# without a word, and so does SIGTERM, which a container's first process only gets with a handler.
signal.signal(signal.SIGINT, signal.SIG_DFL)
signal.signal(signal.SIGTERM, lambda number, frame: os._exit(0))
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from container.server.process import bound_free_memory, end

bound_free_memory()

BEHIND = {"triton": "container.server.triton.app", "vllm": "container.server.vllm.app"}
app = import_module(BEHIND.get("".join(sys.argv[1:2]), "container.server.app"))

if __name__ == "__main__":
    end(app.main(sys.argv[1:]))
