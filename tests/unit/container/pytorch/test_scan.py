"""The scan of a program's file: what builds write passes, all else is refused before torch."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile

import pytest

from container.pytorch import scan
from container.pytorch.scan import (
    CONFIGURATIONS,
    GRAPH_FILE,
    SAMPLE_INPUTS,
    SIGNATURE_FILE,
    ProgramInput,
    ProgramRefused,
    ProgramSignature,
    scan_program,
)

SIGNATURE = ProgramSignature(
    inputs=(ProgramInput(name="input_ids", datatype="INT64", rank=2),), outputs=("embedding",)
)
WEIGHT = {
    "path_name": "weight_0",
    "use_pickle": False,
    "tensor_meta": {"sizes": [{"as_int": 2}]},
}
CODE = "x=__import__('os').system('true')"


def graph(target="torch.ops.aten.linear.default", **changes):
    node = {"name": "linear", "target": target, "metadata": {}, "inputs": []}
    return {
        "guards_code": [],
        "range_constraints": {"s26": {"min_val": 1, "max_val": 32}},
        "graph_module": {"graph": {"nodes": [{**node, **changes.pop("node", {})}]}},
    } | changes


def size(text):
    return {"inputs": [{"arg": {"as_sym_int": {"as_expr": {"expr_str": text}}}}]}


def write(folder, changes=None, *, document=None, config=None, compression=zipfile.ZIP_STORED):
    """A program's file; `changes` replace entries, None leaves one out."""
    weights = {"config": {"w": WEIGHT if config is None else config}}
    entries = {
        "archive_format": b"pt2",
        GRAPH_FILE: json.dumps(graph() if document is None else document),
        SAMPLE_INPUTS: b"",
        SIGNATURE_FILE: SIGNATURE.to_bytes(),
        CONFIGURATIONS[0]: json.dumps(weights),
        CONFIGURATIONS[1]: json.dumps({"config": {}}),
        "data/weights/weight_0": bytes(8),
    } | (changes or {})
    path = folder / "model.pt2"
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, data in entries.items():
            if data is not None:
                archive.writestr(f"model/{name}", data)
    return path


def test_program_of_a_build_gives_its_signature(tmp_path):
    assert scan_program(write(tmp_path)) == SIGNATURE


@pytest.mark.parametrize(
    "text",
    [
        "s26",
        "4*s26 + s67",
        "Max(1, FloorDiv(s26, 2))",
        "Symbol('s26', positive=True, integer=True)",
    ],
)
def test_sizes_are_arithmetic(tmp_path, text):
    path = write(tmp_path, document=graph(node=size(text)))
    assert scan_program(path) == SIGNATURE


@pytest.mark.parametrize(
    "target", ["_operator.mul", "torch.sym_max", "torch.ops.aten.sum.dim_IntList"]
)
def test_operators_are_atens_and_arithmetic_of_sizes(tmp_path, target):
    assert scan_program(write(tmp_path, document=graph(target))) == SIGNATURE


@pytest.mark.parametrize(
    "target",
    [
        "torch.ops.aten.from_file.default",
        "torch.ops.aten.save.default",
        "torch.ops.higher_order.wrap_with_autocast",
        "torch.ops.prims.add.default",
        "torch.load",
        "torch.ops.aten.linear.default.__class__",
        "_operator.methodcaller",
        "#custom:op",
        "os.system",
    ],
)
def test_refuses_operators_that_are_not_atens(tmp_path, target):
    with pytest.raises(ProgramRefused, match="is not of aten; build the engine again"):
        scan_program(write(tmp_path, document=graph(target)))


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "eval('1')",
        "s26.__class__",
        "Symbol('x.y')",
        "lambda: 1",
        "open",
        "[s26]",
        "s26; s67",
    ],
)
def test_refuses_sizes_that_are_code(tmp_path, text):
    with pytest.raises(ProgramRefused, match="is no arithmetic"):
        scan_program(write(tmp_path, document=graph(node=size(text))))


@pytest.mark.parametrize("text", ["9**9**9", "Pow(9, 9999999)", "9" * 20, "s26+" * 600 + "1"])
def test_refuses_sizes_that_have_no_end(tmp_path, text):
    with pytest.raises(ProgramRefused, match="too long, or of more than one power"):
        scan_program(write(tmp_path, document=graph(node=size(text))))


@pytest.mark.parametrize(
    "node",
    [
        {"name": CODE},
        {"inputs": [{"arg": {"as_tensor": {"name": CODE}}}]},
        {"outputs": [{"as_tensors": [{"name": 'w"+exit()+"'}]}]},
        {"forward_arg_names": [["mask", CODE]]},
        {"tensor_values": {CODE: {}}},
        {"name": "layer.__class__"},
    ],
)
def test_refuses_names_that_are_code(tmp_path, node):
    with pytest.raises(ProgramRefused, match="is no name"):
        scan_program(write(tmp_path, document=graph(node=node)))


def test_refuses_weights_whose_names_are_code(tmp_path):
    path = write(tmp_path, {CONFIGURATIONS[0]: json.dumps({"config": {'w"+exit()+"': WEIGHT}})})
    with pytest.raises(ProgramRefused, match="is no name"):
        scan_program(path)


@pytest.mark.parametrize(
    ("tree", "fault"),
    [
        ({"type": "collections.OrderedDict", "context": "[]"}, "have the type"),
        ({"type": "builtins.dict", "context": '[{"__enum__": true, "fqn": "os:x"}]'}, "context"),
    ],
)
def test_refuses_inputs_of_types_that_torch_imports(tmp_path, tree, fault):
    specification = json.dumps([1, {**tree, "children_spec": []}])
    with pytest.raises(ProgramRefused, match=fault):
        scan_program(write(tmp_path, document=graph(node={"in_spec": specification})))


def test_refuses_weights_without_values(tmp_path):
    with pytest.raises(ProgramRefused, match="has a shape and no values"):
        scan_program(write(tmp_path, {"data/weights/weight_0": b""}))


def test_refuses_ranges_of_names_that_are_code(tmp_path):
    document = graph(range_constraints={"exit()": {"min_val": 1}})
    with pytest.raises(ProgramRefused, match="is no arithmetic"):
        scan_program(write(tmp_path, document=document))


def test_refuses_guards_which_torch_would_run(tmp_path):
    with pytest.raises(ProgramRefused, match="guards, which run as Python"):
        scan_program(write(tmp_path, document=graph(guards_code=["exit()"])))


def test_refuses_metadata_of_nodes(tmp_path):
    document = graph(node={"metadata": {"stack_trace": "File x"}})
    with pytest.raises(ProgramRefused, match="has metadata, which no run needs"):
        scan_program(write(tmp_path, document=document))


@pytest.mark.parametrize("field", ["as_custom_obj", "as_graph", "as_operator"])
def test_refuses_arguments_that_are_objects_or_graphs(tmp_path, field):
    document = graph(node={"inputs": [{"arg": {field: {"name": "x"}}}]})
    with pytest.raises(ProgramRefused, match=f"a value is {field}"):
        scan_program(write(tmp_path, document=document))


@pytest.mark.parametrize(
    "config", [{**WEIGHT, "use_pickle": True}, {**WEIGHT, "path_name": "custom_obj_0"}]
)
def test_refuses_pickled_tensors(tmp_path, config):
    with pytest.raises(ProgramRefused, match=r"tensor 'w' of .* is pickled"):
        scan_program(write(tmp_path, config=config))


def test_refuses_pickled_sample_inputs(tmp_path):
    with pytest.raises(ProgramRefused, match="its sample inputs are pickled"):
        scan_program(write(tmp_path, {SAMPLE_INPUTS: pickle.dumps(())}))


@pytest.mark.parametrize(
    "name",
    ["data/weights/model.pt", "data/aotinductor/model/a.so", "models/other.json", "../escape"],
)
def test_refuses_entries_that_no_build_writes(tmp_path, name):
    with pytest.raises(ProgramRefused, match="is none of a program"):
        scan_program(write(tmp_path, {name: b"x"}))


def test_refuses_compressed_entries(tmp_path):
    with pytest.raises(ProgramRefused, match="or compressed"):
        scan_program(write(tmp_path, compression=zipfile.ZIP_DEFLATED))


def test_refuses_a_second_directory_that_torch_would_read(tmp_path):
    path = write(tmp_path)
    data = path.read_bytes()
    end = list(struct.unpack("<4s4H2LH", data[-22:]))
    size, place = end[5:7]
    # Python reads the directory that ends here, torch the one at `place`.
    path.write_bytes(data[:-22] + data[place : place + size] + data[-22:])
    with zipfile.ZipFile(path) as archive:
        assert archive.start_dir == place + size
    with pytest.raises(ProgramRefused, match="does not lie where builds write it"):
        scan_program(path)


def test_refuses_bytes_of_no_entry(tmp_path):
    path = write(tmp_path)
    data = path.read_bytes()
    end = list(struct.unpack("<4s4H2LH", data[-22:]))
    end[6] += 4
    path.write_bytes(data[: end[6] - 4] + b"more" + data[end[6] - 4 : -22])
    with path.open("ab") as file:
        file.write(struct.pack("<4s4H2LH", *end))
    with pytest.raises(ProgramRefused, match="holds bytes of no entry"):
        scan_program(path)


def test_reads_files_beyond_two_gibibytes(tmp_path, monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 200)
    path = write(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr(scan, "DIRECTORY_LIMIT", 200)
    assert scan_program(path) == SIGNATURE


def test_refuses_an_entry_that_is_there_twice(tmp_path):
    path = write(tmp_path)
    with (
        zipfile.ZipFile(path, "a") as archive,
        pytest.warns(UserWarning, match="Duplicate name"),
    ):
        archive.writestr(f"model/{GRAPH_FILE}", json.dumps(graph()))
    with pytest.raises(ProgramRefused, match="is there twice"):
        scan_program(path)


@pytest.mark.parametrize(
    "changes",
    [
        {GRAPH_FILE: None},
        {GRAPH_FILE: b"no json"},
        {SIGNATURE_FILE: b"[]"},
        {CONFIGURATIONS[0]: b"{}"},
    ],
)
def test_refuses_a_file_without_what_it_needs(tmp_path, changes):
    with pytest.raises(ProgramRefused, match="is no program of a build"):
        scan_program(write(tmp_path, changes))


def test_refuses_a_file_that_is_no_archive(tmp_path):
    path = tmp_path / "model.pt2"
    path.write_bytes(pickle.dumps({"weights": 1}))
    with pytest.raises(ProgramRefused, match="is no program of a build"):
        scan_program(path)
