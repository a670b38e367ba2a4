"""A page as a PNG, by the machine's own Chromium, with the digest of what it shows inside."""

from __future__ import annotations

import re
import shutil
import struct
import zlib
from pathlib import Path

from roundhouse.errors import RoundhouseError
from roundhouse.processes import Command, Run

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
KEYWORD = b"roundhouse-dashboard"
END_BYTES = 12
"""Length of IEND, a PNG's last chunk."""


def write_screenshot(
    run: Run, html: Path, target: Path, size: tuple[int, int], digest: str
) -> None:
    """Write the picture of a page.

    Raises RoundhouseError where no browser is there, or it draws nothing.
    """
    browser = next((path for name in BROWSERS if (path := shutil.which(name)) is not None), None)
    if browser is None:
        raise RoundhouseError(
            f"{html}: written, but no {' or '.join(BROWSERS)} is on PATH to draw it; install "
            f"one, or open it."
        )
    shot = html.with_suffix(".shot.png")
    options = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage")
    command = (
        browser,
        *options,
        "--hide-scrollbars",
        f"--user-data-dir={html.with_suffix('.profile')}",
        f"--window-size={size[0]},{size[1]}",
        f"--screenshot={shot}",
        html.resolve().as_uri(),
    )
    outcome = run(Command(argv=command))
    if not shot.is_file():
        raise RoundhouseError(
            f"{html}: {browser} drew nothing (exit code {outcome.code}): {outcome.last_lines()}."
        )
    target.write_bytes(with_digest(shot.read_bytes(), digest))
    shot.unlink()


def with_digest(png: bytes, digest: str) -> bytes:
    """Return a picture with the digest of what it shows, as a text chunk before its end."""
    text = b"tEXt" + KEYWORD + b"\0" + digest.encode("latin-1")
    chunk = struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text))
    return png[:-END_BYTES] + chunk + png[-END_BYTES:]


def digest_of(png: bytes) -> str | None:
    """Return the digest in a picture; None when it has none."""
    match = re.search(b"tEXt" + KEYWORD + rb"\0([0-9a-f]{64})", png)
    return None if match is None else match[1].decode()
