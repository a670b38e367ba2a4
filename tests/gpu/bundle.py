"""Writes what a bare machine with an NVIDIA GPU and Python 3.12 needs, in parts that travel.

`python -m tests.gpu.bundle [OUT]` (`make gpu-bundle`): this tree, the locked wheels, and the
networks and vectors that a CPU makes, compressed together, since the networks share weights. torch
and transformers, which some rows need, TensorRT and Triton are the machine's own.

There: `bash unpack.sh FOLDER_OF_PARTS TARGET`, then `make test-gpu` in TARGET/tree.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from tests.gpu.__main__ import BUNDLE, ROOT, commit
from tests.gpu.minilm import STORE

OUT = ROOT / "build" / "gpu-bundle"
PART_BYTES = 62_000_000
PYTHON = "3.12"
PLATFORM = "x86_64-manylinux_2_28"
LOCKS = ("builder", "server", "test", "bindings-11.4.0.106")
"""Of these all but LEFT_OUT; the last for CUDA's Python bindings."""
LEFT_OUT = re.compile(
    r"pip|setuptools|sympy|networkx|mpmath|scikit-learn|scipy|joblib|threadpoolctl|narwhals|torch"
    r"|sentence-transformers|transformers|cloudpickle|hf-xet|nvidia-.*|triton|tensorrt-.*"
    r"|boto3|botocore|s3transfer|jmespath|huggingface-hub"
)
"""What the machine has, with the hub client of its own transformers, and what no row imports."""
NOT_NEEDED = re.compile(r"/__pycache__$|/(onnx|numpy)/(.*/)?tests?$")
NUMPY_OF_TRITON = "triton"
"""The lock with the NumPy of Triton's Python stub."""
ZSTANDARD_SHA256 = "5a56ba0db2d244117ed744dfa8f6f5b366e14148e00de44723413b2f3938a902"
"""For Python 3.12 on Linux alone: what unpacks the rest."""
UNPACK = """set -e
# bash unpack.sh FOLDER_OF_PARTS TARGET
python3 -c 'import sys; assert sys.version_info[:2] == (3, 12), "needs Python 3.12: " + sys.version'
mkdir -p "$2" && cat "$1"/part.* | tar -x -C "$2" && cd "$2"
python3 -m zipfile -e zstandard-*.whl zstandard
python3 - <<'P'
import sys; sys.path.insert(0, "zstandard")
import tarfile, zstandard
reader = zstandard.ZstdDecompressor(max_window_size=1 << 28)
with open("payload.tar.zst", "rb") as file, reader.stream_reader(file) as stream:
    with tarfile.open(fileobj=stream, mode="r|") as archive: archive.extractall(filter="data")
P
rm -r payload.tar.zst zstandard zstandard-*.whl
packages=lib/python3.12/site-packages
for name in builder triton; do
  python3 -m venv --without-pip tree/.venvs/$name
  cp -rl $name/. tree/.venvs/$name/$packages && rm -r $name
done
echo "$PWD/tree/.venvs/builder/$packages" > tree/.venvs/triton/$packages/builder.pth
# torch and transformers are the machine's; what lies in a .pth comes behind our own.
python3 -c 'import site; print(*site.getsitepackages(), site.getusersitepackages(), sep="\\n")' \\
  > tree/.venvs/builder/$packages/machine.pth
echo "cd $PWD/tree && make test-gpu   # or: .venvs/builder/bin/python -m tests.gpu"
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.bundle", description=__doc__)
    parser.add_argument("out", nargs="?", type=Path, default=OUT)
    out = parser.parse_args().out.resolve()
    if shutil.which("zstd") is None:
        print("zstd is not here: sudo apt-get install zstd", file=sys.stderr)
        return 1
    run(sys.executable, "-m", "tests.gpu.minilm", str(STORE))
    work = out / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    blocks = dict(pin for lock in LOCKS for pin in pins(lock) if not LEFT_OUT.fullmatch(pin[0]))
    install(work / "builder", work / "builder.txt", "\n".join(blocks.values()))
    numpy = dict(pins(NUMPY_OF_TRITON))["numpy"]
    install(work / "triton", work / "triton.txt", numpy)
    pin = f"zstandard==0.25.0 --hash=sha256:{ZSTANDARD_SHA256}\n"
    (work / "zstandard.txt").write_text(pin, encoding="utf-8")
    run(
        *(str(ROOT / ".venvs/builder/bin/python"), "-m", "pip", "download", "-q", "--no-deps"),
        *("--only-binary=:all:", "--python-version", PYTHON, "--implementation", "cp"),
        *("--platform", "manylinux2014_x86_64", "-d", str(work)),
        *("--require-hashes", "-r", str(work / "zstandard.txt")),
    )
    facts = {"commit": commit()}
    (work / BUNDLE.name).write_text(json.dumps(facts) + "\n", encoding="utf-8")
    archive = work / "payload.tar"
    with tarfile.open(archive, "w") as tar:
        tar.add(work / BUNDLE.name, f"tree/{BUNDLE.name}")
        for path in contents():
            tar.add(path, f"tree/{path.relative_to(ROOT)}", recursive=False)
        for name in ("builder", "triton"):
            tar.add(work / name, name, filter=needed)
    run("zstd", "-q", "-f", "--rm", "-15", "-T0", "--long=28", str(archive))
    return write_parts(work, out)


def contents() -> Iterator[Path]:
    """Yield the files of the tree that git knows, and what the CPU stage made."""
    listed = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    names = subprocess.run(listed, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    paths = {ROOT / name for name in names.decode().split("\0") if name}
    made = (STORE.rglob("*"), (ROOT / "build" / "demo").glob("reference-*.json"))
    paths |= {path for places in made for path in places}
    # Networks last, side by side: the second holds most bytes of the first.
    key = {path: (path.suffix == ".onnx", path) for path in paths if path.is_file()}
    return iter(sorted(key, key=lambda path: key[path]))


def pins(lock: str) -> Iterator[tuple[str, str]]:
    """Yield each package of a lock with its lines: version and hashes."""
    text = (ROOT / "requirements" / f"{lock}.txt").read_text(encoding="utf-8")
    for block in re.split(r"\n(?=[A-Za-z0-9])", text):
        name = re.match(r"[A-Za-z0-9._-]+(?===)", block)
        if name is not None:
            yield name[0], re.sub(r"\n +#.*", "", block).rstrip()


def install(folder: Path, requirements: Path, text: str) -> None:
    """Install locked wheels for the other machine's Python into a folder."""
    requirements.write_text(text + "\n", encoding="utf-8")
    uv = ROOT / ".venvs" / "uv" / "bin" / "uv"
    run(
        *(str(uv), "pip", "install", "--quiet", "--no-deps", "--only-binary", ":all:"),
        *("--python-version", PYTHON, "--python-platform", PLATFORM, "--target", str(folder)),
        *("--require-hashes", "-r", str(requirements)),
    )


def needed(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out bytecode, and the tests of two large packages."""
    return None if NOT_NEEDED.search(member.name) else member


def write_parts(work: Path, out: Path) -> int:
    """Write the parts and unpack.sh, and remove what an earlier bundle left."""
    for old in out.glob("part.*"):
        old.unlink()
    whole = work / "whole.tar"
    with tarfile.open(whole, "w") as tar:
        for path in (work / "payload.tar.zst", *work.glob("zstandard-*.whl")):
            tar.add(path, path.name)
    number, size = 0, whole.stat().st_size
    with whole.open("rb") as file:
        while chunk := file.read(PART_BYTES):
            (out / f"part.{number:02}").write_bytes(chunk)
            number += 1
    shutil.rmtree(work)
    (out / "unpack.sh").write_text(UNPACK, encoding="utf-8")
    print(f"{number} parts, {size / 1e6:.0f} MB, in {out}; unpack.sh puts them together there")
    return 0


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, cwd=ROOT)


if __name__ == "__main__":
    sys.exit(main())
