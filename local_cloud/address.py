"""Where a running local cloud answers, as it stands in its state folder."""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

ADDRESS_FILE = "cloud.json"


@dataclass(frozen=True, kw_only=True)
class CloudAddress:
    """A running local cloud; `pid_started` tells its process from a later one of the same pid."""

    pid: int
    pid_started: str
    port: int
    endpoint_url: str
    started_at: str
    seconds_per_minute: float


def process_start(pid: int) -> str | None:
    """When a process started, as boot id and kernel ticks; None when there is no such process."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    if fields[0] in "ZX":
        return None
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return f"{boot}/{fields[19]}"


def write_own_address(state: Path, port: int, seconds_per_minute: float) -> None:
    """Leave the address of this very process in the state folder, whole or not at all."""
    address = CloudAddress(
        pid=os.getpid(),
        pid_started=str(process_start(os.getpid())),
        port=port,
        endpoint_url=f"http://127.0.0.1:{port}",
        started_at=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        seconds_per_minute=seconds_per_minute,
    )
    draft = state / f"{ADDRESS_FILE}.{os.getpid()}"
    draft.write_text(json.dumps(asdict(address), indent=2) + "\n", encoding="utf-8")
    draft.replace(state / ADDRESS_FILE)


def is_alive(address: CloudAddress) -> bool:
    """Whether the process of the address still runs."""
    return process_start(address.pid) == address.pid_started


def read_address(state: Path) -> CloudAddress | None:
    """The address last written in a state folder, whether or not its process still runs."""
    try:
        return CloudAddress(**json.loads((state / ADDRESS_FILE).read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError, TypeError):
        return None
