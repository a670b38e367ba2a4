"""File descriptors: a connection takes one, and a process may be started with fewer than its
connections need.
"""

from __future__ import annotations

import resource
from contextlib import suppress

OTHERS = 256
"""What else a server has open: libraries, the engine, its archive, the ways between processes."""


def allow_connections(connections: int) -> None:
    """Raises this process's own limit, and that of what it starts, as far as it may be raised
    without rights.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHERS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        with suppress(
            ValueError, OSError
        ):  # then connections beyond are refused one by one, and said
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
