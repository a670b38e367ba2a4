"""Programs that are damaged: one sentence, whatever torch makes of them."""

from __future__ import annotations

import copy
import json
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from container.pytorch.scan import CONFIGURATIONS, GRAPH_FILE
from engine_build.errors import SourceFault
from engine_build.exported import ExportedProgram
from engine_build.sources.program import write_program

FEED = {"values": np.ones((2, 3), np.float32)}


class Layer(torch.nn.Module):
    """One linear layer; builds' modules take any number of tensors."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 4)

    def forward(self, *tensors):
        return self.linear(tensors[0]).relu()


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    module = Layer()

    def rows(feed):
        with torch.no_grad():
            return module(torch.from_numpy(feed["values"])).numpy()

    source = SimpleNamespace(inputs=("values",), output="vector", module=module, rows=rows)
    path = tmp_path_factory.mktemp("program") / "model.pt2"
    write_program(source, [FEED], path, longest=None)
    return path


@pytest.fixture(scope="module")
def entries(program):
    with zipfile.ZipFile(program) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write(path, entries):
    """Write a program's file as builds write it, so that nothing but its content is wrong."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            archive.writestr(zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0)), data)
    return path


def reason(path):
    """Return why a program is refused, in loading or in running; None for one that answers."""
    try:
        ExportedProgram(path).rows(FEED)
    except SourceFault as fault:
        return str(fault)
    return None


def keys(document, path=()):
    """Yield the path of every key of a document; of equal things in a list the first counts."""
    items = document.items() if isinstance(document, dict) else enumerate(document[:1])
    for key, value in items:
        yield (*path, key)
        if isinstance(value, dict | list):
            yield from keys(value, (*path, key))


def change_value(document, path, change):
    """Return a copy in which one value is another; `change` None removes its key."""
    document = copy.deepcopy(document)
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    if change is None:
        del parent[path[-1]]
    else:
        parent[path[-1]] = change
    return document


def test_program_answers_and_a_wrong_input_is_one_sentence(program):
    assert reason(program) is None
    with pytest.raises(SourceFault, match=r"^torch 2\.[0-9.]+ cannot run the program \("):
        ExportedProgram(program).rows({"values": np.ones((2, 5), np.float32)})


@pytest.mark.parametrize("change", [None, "nothing"])
@pytest.mark.parametrize("name", [GRAPH_FILE, *CONFIGURATIONS])
def test_every_damage_to_a_document_is_harmless_or_one_sentence(entries, tmp_path, name, change):
    """torch raises SpecViolationError, KeyError, AssertionError and more; none of them escapes."""
    name = f"model/{name}"
    document = json.loads(entries[name])
    reasons = []
    for path in keys(document):
        damaged = json.dumps(change_value(document, path, change)).encode()
        reasons.append(reason(write(tmp_path / "model.pt2", {**entries, name: damaged})))
    assert all(text is None or "\n" not in text for text in reasons)
    assert all(text is None or text.endswith("build it again.") for text in reasons)
    assert any(reasons) or name.endswith("constants_config.json")


def test_refuses_weights_cut_short_files_cut_short_and_files_of_other_kinds(entries, tmp_path):
    path = tmp_path / "model.pt2"
    weight = next(name for name in entries if name.endswith("weights/weight_0"))
    whole = write(path, entries).read_bytes()
    assert "refuses the program" in reason(write(path, {**entries, weight: entries[weight][:5]}))
    for data in (b"", b"PK", whole[: len(whole) // 2], whole[:-1], bytes(1000)):
        path.write_bytes(data)
        assert "refuses the program" in reason(path)
    path.unlink()
    assert "refuses the program" in reason(path)
    path.mkdir()
    assert "refuses the program" in reason(path)
