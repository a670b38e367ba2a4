"""The timing cache of one TensorRT build on one GPU model: later builds skip measured kernels.

It lies beside the engines, under names.timing_cache_path. It saves time and never decides whether a
build succeeds: a damaged one, or a store that does not answer, is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine_build.errors import PublishFailed
from engine_build.log import Log
from engine_build.store import Store, sha256_of
from onboarding.names import timing_cache_path


class TimingCache:
    """One cache: trtexec reads and writes `path`, the stores keep it, the nearest first."""

    def __init__(
        self, stores: Sequence[Store], tensorrt: str, gpu: str, path: Path, log: Log
    ) -> None:
        self.path = path
        self._stores = stores
        self._name = timing_cache_path(tensorrt, gpu)
        self._log = log
        self._uploaded: str | None = None

    @property
    def sha256(self) -> str | None:
        """Digest of the file; None when there is none."""
        return sha256_of(self.path) if self.path.is_file() else None

    def fetch(self) -> bool:
        """Copy the nearest store's cache here; return False when no store has one."""
        for store in self._stores:
            try:
                data = store.read(self._name)
            except PublishFailed as error:
                self._log.line(f"  no timing cache: {error}")
                continue
            if data is not None:
                # Never a link to the store's own file, which trtexec would write into.
                self.path.unlink(missing_ok=True)
                self.path.write_bytes(data)
                self._uploaded = self.sha256
                size = f"{len(data) / 1e6:.1f} MB"
                self._log.line(f"  timing cache {self._name} of {store.place}, {size}")
                return True
        return False

    def upload(self) -> None:
        """Write the cache to every store; of two builds at once, the last writer's remains."""
        digest = self.sha256
        if digest is None or digest == self._uploaded:
            return
        for store in self._stores:
            try:
                store.upload(self.path, self._name)
            except PublishFailed as error:
                self._log.line(f"  the timing cache is not kept: {error}")
        self._uploaded = digest
