"""Runs `vllm bench serve` again and again in one process: its imports take longer than a load.

A program for an environment with vLLM. It reads the arguments of a run as a JSON list from each
line, and answers with a line of JSON: the numbers that the run saves. vLLM reads prompts of a file
with pandas, which that environment need not have; here they are read without.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Answer each line until the input ends; what vLLM prints goes to the log."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    from vllm.benchmarks.datasets import CustomDataset
    from vllm.benchmarks.serve import add_cli_args
    from vllm.benchmarks.serve import main as run

    CustomDataset.load_data = load_data
    for line in sys.stdin:
        parser = argparse.ArgumentParser()
        add_cli_args(parser)
        result = run(parser.parse_args(json.loads(line)))
        numbers = {name: value for name, value in result.items() if isinstance(value, int | float)}
        print(json.dumps(numbers), file=answers, flush=True)


def load_data(dataset: Any) -> None:
    """Read the prompts of a custom dataset."""
    lines = Path(dataset.dataset_path).read_text(encoding="utf-8").splitlines()
    dataset.data = [json.loads(line) for line in lines]


if __name__ == "__main__":
    main()
