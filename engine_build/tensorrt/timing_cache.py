"""The timing cache of one TensorRT build on one GPU model: kernels measured once are not measured
again by the next build.

It lies beside the engines, under names.timing_cache_path. It saves time and never decides whether a
build succeeds: a damaged
one, or a store that does not answer, is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from engine_build.errors import PublishFailed
from engine_build.log import Log
from engine_build.store import Store, sha256_of
from onboarding.names import timing_cache_path


class TimingCache:
    """One cache: `path` is the file that trtexec reads and writes, the stores keep it for others,
    the nearest first.
    """

    def __init__(
        self, stores: Sequence[Store], tensorrt: str, gpu: str, path: Path, log: Log
    ) -> None:
        self.path = path
        self._stores = stores
        self._name = timing_cache_path(tensorrt, gpu)
        self._log = log
        self._kept: str | None = None

    @property
    def sha256(self) -> str | None:
        """Digest of the file; None when there is none."""
        return sha256_of(self.path) if self.path.is_file() else None

    def bring(self) -> bool:
        """Copies the nearest store's cache here; False when no store has one."""
        for store in self._stores:
            data = self._read(store)
            if data is not None:
                # Never a link to the store's own file, which trtexec would write into.
                self.path.unlink(missing_ok=True)
                self.path.write_bytes(data)
                self._kept = self.sha256
                self._log.line(
                    f"  timing cache {self._name} of {store.place}, {len(data) / 1e6:.1f} MB"
                )
                return True
        return False

    def drop(self) -> None:
        """Leaves the cache out of this build."""
        self.path.unlink(missing_ok=True)

    def keep(self) -> None:
        """Gives every store the cache as it is now; whoever writes last wins, and loses at most
        some measurements of others.
        """
        digest = self.sha256
        if digest is None or digest == self._kept:
            return
        for store in self._stores:
            try:
                store.upload(self.path, self._name)
            except PublishFailed as error:
                self._log.line(f"  the timing cache is not kept: {error}")
        self._kept = digest

    def _read(self, store: Store) -> bytes | None:
        try:
            return store.read(self._name)
        except PublishFailed as error:
            self._log.line(f"  no timing cache: {error}")
            return None
