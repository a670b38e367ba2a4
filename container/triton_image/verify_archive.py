"""Checks archives before Triton reads anything of them, with code of the image.

No archive vouches for itself. A message with a folder on the socket that is standard input is
answered with "ok" when a trusted signer signed every byte there, or with a refusal. Of the image's
packages it imports cryptography alone.
"""

from __future__ import annotations

import hashlib
import os
import socket
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
LONGEST_PATH, LONGEST_ANSWER = 4096, 4095
"""Bytes, as verify_repository.c takes them."""


def refuse_unsigned_archive(folder: Path, signers: str) -> None:
    """Refuse an archive unless one of the signers signed its manifest, which names every file.

    Raises Refused and OSError.
    """
    refuse_other_entries(folder)
    if (folder / MANIFEST_NAME).is_file():
        refuse_unsigned_manifest(folder, signers)
    manifest = read_manifest(folder, os.environ.get(PIN) or None)
    refuse_changed_files(folder, manifest["files"])


def refuse_unsigned_manifest(folder: Path, signers: str) -> None:
    """Refuse a manifest, before it is parsed, unless one of the signers signed it.

    Raises Refused.
    """
    try:
        keys = parse_signers(signers)
    except SignatureFault as fault:
        raise Refused(
            f"Refused: {SIGNERS_VARIABLE} {fault}; name the keys of `trusted_signers`."
        ) from fault
    digest = hashlib.sha256((folder / MANIFEST_NAME).read_bytes()).hexdigest()
    try:
        verify_envelope(folder, digest, keys)
    except SignatureFault as fault:
        raise Refused(f"Refused: {fault}; {UNTRUSTED}.") from fault


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


def answer(folder: Path, signers: str) -> str:
    """Return "ok", or the refusal of an archive in one sentence."""
    try:
        refuse_unsigned_archive(folder, signers)
    except Refused as refusal:
        return str(refusal)
    except OSError as fault:
        return f"Refused: {fault.filename} cannot be checked ({fault.strerror})."
    return "ok"


def main() -> None:
    """Answer until the other end of the socket, which is standard input, is closed."""
    signers = os.environ.get(SIGNERS_VARIABLE, "")
    with socket.socket(fileno=sys.stdin.fileno()) as connection:
        while folder := connection.recv(LONGEST_PATH):
            connection.send(answer(Path(os.fsdecode(folder)), signers).encode()[:LONGEST_ANSWER])


if __name__ == "__main__":
    main()
