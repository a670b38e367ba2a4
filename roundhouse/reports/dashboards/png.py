"""A page as a PNG, by the machine's own Chromium, with the digest of what it shows inside."""

from __future__ import annotations

import shutil
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from roundhouse.errors import RoundhouseError
from roundhouse.processes import Command, Run

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
SIGNATURE = b"\x89PNG\r\n\x1a\n"
KEYWORD = b"roundhouse-dashboard"


def write_screenshot(
    run: Run, html: Path, target: Path, size: tuple[int, int], digest: str
) -> None:
    """Writes the picture of a page.

    Raises RoundhouseError where no browser is there, or it draws nothing.
    """
    browser = next((found for name in BROWSERS if (found := shutil.which(name)) is not None), None)
    if browser is None:
        raise RoundhouseError(
            f"{html}: written, but no {' or '.join(BROWSERS)} is on PATH to draw it; install "
            f"one, or open it."
        )
    shot = html.with_suffix(".shot.png")
    outcome = run(_command(browser, html, shot, size))
    if not shot.is_file():
        raise RoundhouseError(
            f"{html}: {browser} drew nothing (exit code {outcome.code}): {outcome.last_lines()}."
        )
    target.write_bytes(with_digest(shot.read_bytes(), digest))
    shot.unlink()


def with_digest(png: bytes, digest: str) -> bytes:
    """The same picture with the digest of what it shows, as a text chunk before its end."""
    kept = [
        (kind, data)
        for kind, data in _chunks(png)
        if not (kind == b"tEXt" and data.startswith(KEYWORD))
    ]
    text = (b"tEXt", KEYWORD + b"\0" + digest.encode("latin-1"))
    return SIGNATURE + b"".join(_chunk(kind, data) for kind, data in (*kept[:-1], text, kept[-1]))


def digest_of(png: bytes) -> str | None:
    """The digest in a picture; None when it has none."""
    texts = [data.split(b"\0", 1) for kind, data in _chunks(png) if kind == b"tEXt"]
    return next((value.decode("latin-1") for keyword, value in texts if keyword == KEYWORD), None)


def _command(browser: str, html: Path, shot: Path, size: tuple[int, int]) -> Command:
    return Command(
        argv=(
            browser,
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            f"--user-data-dir={html.with_suffix('.profile')}",
            f"--window-size={size[0]},{size[1]}",
            f"--screenshot={shot}",
            html.resolve().as_uri(),
        )
    )


def _chunks(png: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Kind and data of every chunk. Raises ValueError for what is no PNG."""
    if not png.startswith(SIGNATURE):
        raise ValueError("not a PNG file")
    at = len(SIGNATURE)
    while at < len(png):
        (length,) = struct.unpack_from(">I", png, at)
        yield png[at + 4 : at + 8], png[at + 8 : at + 8 + length]
        at += length + 12


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
