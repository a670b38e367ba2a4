"""A road with one tiny model: its own onboarding tree, its own local cloud, everything real, in seconds."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from workbench import asking, deploying
from workbench.local_cloud import lifecycle
from workbench.places import Places
from workbench.report import Report
from workbench.road import LOCAL, Road, cloud_state, open_road

REPOSITORY = Path(__file__).resolve().parents[2]
FIXTURE = REPOSITORY / "tests" / "fixtures" / "tiny_embedder"
MODEL = """\
name: tiny
task: text-embedding
source: {{onnx: models/tiny/model.onnx, sha256: {sha256}}}
engine:
  precision: {precision}
  optimization_profiles: [{{batch: [1, 2, 4], sequence: [2, 8, 16]}}]
  calibration: {{dataset: models/data/calibration.txt, samples: 12}}
accuracy:
  dataset: models/data/sentences.txt
  budget: {{mean: {mean}}}
serving: {{server: python}}
endpoint: {{instance_type: ml.c7i.large}}
"""
ENVIRONMENT = """\
name: local
account: "000000000000"
region: us-east-1
platform: triton-24.10-cpu
locks: build/local/locks
"""
WORDS = ("bird", "sat", "mat", "fast", "red", "train", "ran", "over", "green", "track", "under", "blue", "signal", "house")


@dataclass(frozen=True, kw_only=True)
class TinyRoad:
    """The places of a tiny road; its cloud may be stopped and started."""

    places: Places

    def start(self) -> Road:
        """The road, its local cloud started when it is not up."""
        lifecycle.start(self.places.code, cloud_state(self.places))
        return open_road(self.places, Report(console=Console(file=io.StringIO())), LOCAL)

    def stop(self) -> None:
        """Nothing of it is left."""
        lifecycle.stop(cloud_state(self.places))

    def write_model(self, network: bytes, *, precision: str = "fp32", mean: float = 0.99) -> None:
        """The model file and its network: other bytes are another engine, and so is another precision or budget."""
        folder = self.places.tree / "models" / "tiny"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "model.onnx").write_bytes(network)
        shutil.copyfile(FIXTURE / "tokenizer.json", folder / "tokenizer.json")
        (folder.parent / "tiny.yaml").write_text(
            MODEL.format(sha256=hashlib.sha256(network).hexdigest(), precision=precision, mean=mean)
        )

    @property
    def lock(self) -> Path:
        """The tiny model's lock."""
        return self.places.tree / "build" / "local" / "locks" / "tiny.lock.yaml"


def new_road(place: Path) -> TinyRoad:
    """Writes the onboarding tree of a tiny road."""
    road = TinyRoad(places=Places(code=REPOSITORY, tree=place, build=place / "build"))
    for folder in ("models/data", "endpoints", "environments"):
        (place / folder).mkdir(parents=True)
    sentences = {" ".join((WORDS[i], WORDS[j], WORDS[(i + j) % len(WORDS)])) for i in range(12) for j in range(12)}
    (place / "models" / "data" / "sentences.txt").write_text("\n".join(sorted(sentences)) + "\n")
    (place / "models" / "data" / "calibration.txt").write_text("".join(f"{word} {word} the\n" for word in WORDS))
    (place / "environments" / "local.yaml").write_text(ENVIRONMENT)
    road.write_model(sound_network())
    return road


def sound_network() -> bytes:
    return (FIXTURE / "model.onnx").read_bytes()


def weighted_network() -> bytes:
    """A sound network that loses something in INT8."""
    return (FIXTURE / "weighted.onnx").read_bytes()


def walk(road: Road, *, rebuild_gone: bool = False) -> deploying.RoadDone:
    return deploying.deploy(road, rebuild_gone=rebuild_gone)


def vector(road: Road) -> asking.Vector:
    """What the endpoint answers now."""
    address = asking.Address(endpoint="local-tiny", target_model=None)
    return asking.ask(road.clients("sagemaker-runtime"), address, ["a red train"])[0]


def processes_of(place: Path) -> list[int]:
    """Processes whose command line names a folder."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            continue
        if str(place).encode() in words and int(entry.name) != os.getpid():
            found.append(int(entry.name))
    return found
