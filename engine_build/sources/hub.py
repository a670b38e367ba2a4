"""Repositories of the Hugging Face hub: the files of a pinned commit, or why they are refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from engine_build.errors import SourceFault, one_line
from engine_build.sources.wheel import DISK_FULL

NO_TOKEN = (
    "name a secret with a token that may read it as `source_secrets.huggingface` in the "
    "environment file, or set HF_TOKEN"
)


@dataclass(frozen=True, kw_only=True)
class Repository:
    """One repository at one commit, as a model file pins it: owner/name@commit."""

    pin: str
    token: str | None
    """None: huggingface_hub looks for HF_TOKEN."""
    endpoint: str | None = None
    """Another one than huggingface_hub itself uses."""

    def download(self, patterns: Iterable[str], folder: Path) -> None:
        """Download the files that match a pattern. Raises SourceFault."""
        from huggingface_hub import snapshot_download
        from huggingface_hub.utils import disable_progress_bars

        disable_progress_bars()
        name, _, commit = self.pin.partition("@")
        try:
            snapshot_download(
                name,
                revision=commit,
                local_dir=str(folder),
                allow_patterns=list(patterns),
                endpoint=self.endpoint,
                token=self.token,
            )
        except Exception as error:
            if isinstance(error, OSError) and error.errno in DISK_FULL:
                raise
            raise self._fault(error) from error

    def file_names(self) -> tuple[str, ...]:
        """Return the paths of every file. Raises SourceFault."""
        from huggingface_hub import HfApi

        name, _, commit = self.pin.partition("@")
        try:
            api = HfApi(endpoint=self.endpoint, token=self.token)
            return tuple(api.list_repo_files(name, revision=commit))
        except Exception as error:
            raise self._fault(error) from error

    def _fault(self, error: Exception) -> SourceFault:
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

        if isinstance(error, RepositoryNotFoundError):
            has_token = "Authorization" in error.response.request.headers
            if isinstance(error, GatedRepoError):
                way_out = "ask for access with the token's account" if has_token else NO_TOKEN
                return SourceFault(f"{self.pin} is gated; {way_out}.")
            reason, way_out = "it is private, gated or not there", NO_TOKEN
            if has_token:
                reason, way_out = (
                    "the token may not read it, or it is not there",
                    "give one that may",
                )
            return SourceFault(
                f"{self.pin} cannot be fetched: {reason}; {way_out}, or correct the name."
            )
        return SourceFault(
            f"{self.pin} cannot be fetched ({one_line(error)}); check repository and commit, and "
            "that this machine reaches it."
        )
