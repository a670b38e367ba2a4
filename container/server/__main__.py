"""The command that starts the Python server: `python -m container.server [serve]`."""

import signal
import sys

# Importing the rest takes a third of a second: until the server listens for it, Ctrl-C ends it
# without a word.
signal.signal(signal.SIGINT, signal.SIG_DFL)

from container.server.process import bound_free_memory, end, prepare_process

prepare_process()
bound_free_memory()

from container.server.app import main

if __name__ == "__main__":
    end(main(sys.argv[1:]))
