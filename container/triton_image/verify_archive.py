"""Checks one archive before Triton reads anything of it: `verify_archive.py FOLDER`.

The image's own code, so that no archive vouches for itself. Exit codes: 0 a trusted signer signed
every byte; 1 refused, with the sentence on stdout. Runs with the standard library only.
"""

from __future__ import annotations

import hashlib
import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from container.triton.manifest_check import (
    MANIFEST_NAME,
    PIN,
    Refused,
    read_manifest,
    refuse_changed_files,
)
from onboarding.signature import (
    SIGNERS_VARIABLE,
    UNTRUSTED,
    SignatureFault,
    parse_signers,
    verify_envelope,
)

CACHE = "__pycache__"


def refuse_unsigned_archive(folder: Path, signers: str) -> None:
    """Refuse an archive unless one of the signers signed its manifest, which names every file.

    Raises Refused.
    """
    refuse_other_entries(folder)
    manifest = read_manifest(folder, os.environ.get(PIN) or None)
    digest = hashlib.sha256((folder / MANIFEST_NAME).read_bytes()).hexdigest()
    try:
        keys = parse_signers(signers)
    except SignatureFault as fault:
        raise Refused(
            f"Refused: {SIGNERS_VARIABLE} {fault}; name the keys of `trusted_signers`."
        ) from fault
    try:
        verify_envelope(folder, digest, keys)
    except SignatureFault as fault:
        raise Refused(f"Refused: {fault}; {UNTRUSTED}.") from fault
    refuse_changed_files(folder, manifest["files"])


def refuse_other_entries(folder: Path) -> None:
    """Refuse what could be loaded though no manifest names it, such as links to elsewhere.

    Python's caches are removed: the python backend writes some at every load, and would run one
    that came with the archive in place of the code that is signed. Raises Refused and OSError.
    """
    for parent, folders, files in os.walk(folder):
        for path in (Path(parent, name) for name in (*folders, *files)):
            if path.is_symlink() or not (path.is_file() or path.is_dir()):
                raise Refused(
                    f"Refused: {path.relative_to(folder)} is neither a file nor a folder; publish "
                    "the archive again."
                )
            if path.name == CACHE and path.is_dir():
                for cached in path.iterdir():
                    cached.unlink()
                path.rmdir()
        folders[:] = [name for name in folders if name != CACHE]


def main(arguments: list[str]) -> int:
    """Return the exit code."""
    try:
        refuse_unsigned_archive(Path(arguments[0]), os.environ.get(SIGNERS_VARIABLE, ""))
    except Refused as refusal:
        print(refusal)
        return 1
    except OSError as fault:
        print(f"Refused: {fault.filename} cannot be checked ({fault.strerror}).")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
