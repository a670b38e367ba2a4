"""A text generator of `dev`, as tests of promotions need it."""

from __future__ import annotations

import json

from onboarding.generation_resolve import checkpoint_keys, generation_deployments
from onboarding.lock import write_lock_entry
from onboarding.tree import read_tree
from roundhouse.processes import Processes
from roundhouse.promoted_tree import environment_paths
from tests.synth.generation_cases import generator_files
from tests.unit.onboarding.text_generation.entries import CONTENT, entry_of
from tests.unit.roundhouse.gitops.rungs import BUCKETS

CALIBRATION = "models/data/chat.txt"
SPEC = {
    "quantization": {"schemes": ["bf16", "int8"], "calibration": {"dataset": CALIBRATION}},
    "endpoint": {"instance_types": ["ml.g5.2xlarge"]},
}
DEV, PROD = BUCKETS["dev"], BUCKETS["prod"]


class Chat:
    """A text generator of `dev`, whose checkpoints are built and published."""

    def __init__(self, rungs):
        self.rungs, self.root = rungs, rungs.root
        self.dev, self.prod = (rungs.s3.buckets[name] for name in (DEV, PROD))
        self.write()
        self.build("bf16", "int8")

    def write(self, **changes):
        for name, content in generator_files(**{**SPEC, **changes}).items():
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            data = content if isinstance(content, bytes) else str(content).encode()
            (self.root / name).write_bytes(data)
        texts = "".join(f"Text number {number} of a chat.\n" for number in range(600))
        (self.root / CALIBRATION).write_text(texts)

    def deployment(self, environment="dev", root=None):
        tree = read_tree(root or self.root)
        assert tree.faults == (), "\n".join(map(str, tree.faults))
        (found,) = generation_deployments(tree, environment)
        return found

    def build(self, *schemes, **fields):
        """Lock and publish these checkpoints."""
        for key, scheme in checkpoint_keys(self.deployment().spec, self.root).items():
            if scheme in schemes:
                entry = entry_of(key, CONTENT, scheme=scheme, **fields)
                write_lock_entry(self.root / "models", "chat", entry)
                self.publish(entry)
        return self.rungs.repository.commit()

    def publish(self, entry):
        for path, data in CONTENT.items():
            self.dev[f"{entry.prefix}{path}"] = data
        record = entry.model_dump(mode="json", exclude={"knee"})
        self.dev[f"checkpoints/{entry.checkpoint_key}.json"] = json.dumps(record).encode()

    def promoted(self):
        own = environment_paths(self.rungs.paths, "prod", Processes())
        return self.deployment("prod", own.tree)

    def copies(self):
        return [key for key in self.rungs.s3.copies if key.startswith("checkpoints/")]
