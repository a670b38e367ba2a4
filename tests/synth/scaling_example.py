"""The worked examples of docs/endpoints.md, made by the code they explain.

`python -m tests.synth.scaling_example --write`.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

from onboarding.memory import memory_notes
from stacks.scaling import scaled_counts
from tests.synth.deployments import ROOT, one, with_locks

DOCUMENT = ROOT / "docs" / "endpoints.md"
BLOCK = re.compile(
    r"(<!-- example: (?P<name>[a-z-]+) -->\n```[a-z]*\n)(?P<text>.*?)(\n```)", re.DOTALL
)


def examples() -> dict[str, str]:
    """Text of every example, by the name that the document gives it."""
    embedder = one("dev", "sentence-embedder")
    (target,) = embedder.targets
    assert target.lock_entry is not None
    records = [
        f"batch {item.batch:>2} of {item.sequence} tokens: p99 {item.p99_ms:g} ms,"
        f" {item.rows_per_second:.1f} rows/s"
        for item in target.lock_entry.manifest.benchmark
    ]
    policy = scaled_counts(embedder)[0].tracking[0]
    shared = with_locks(one("dev", "text-shared"), device_memory_mib=15000.0)
    return {
        "benchmark": "\n".join(records),
        "policy": json.dumps({"TargetValue": policy.derivation, "Target": policy.value}, indent=2),
        "memory": "\n".join(memory_notes(shared)),
    }


def document_text(text: str) -> str:
    """The document with every example as the code makes it now."""
    found = examples()
    return BLOCK.sub(lambda block: f"{block[1]}{found[block['name']]}{block[4]}", text)


def main(path: Path = DOCUMENT) -> None:
    """Write the examples into the document."""
    path.write_text(document_text(path.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("python -m tests.synth.scaling_example --write")
    main()
