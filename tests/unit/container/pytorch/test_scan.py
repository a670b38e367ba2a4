"""The scan of a program's file: what builds write passes, all else is refused before torch."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile

import pytest

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
    path = write(tmp_path)
    signature, copy = scan_program(path)
    assert signature == SIGNATURE
    with zipfile.ZipFile(path) as ours, zipfile.ZipFile(copy) as theirs:
        assert ours.namelist() == theirs.namelist()
        assert all(ours.read(name) == theirs.read(name) for name in ours.namelist())


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
    assert scan_program(path)[0] == SIGNATURE


@pytest.mark.parametrize(
    "target", ["_operator.mul", "torch.sym_max", "torch.ops.aten.sum.dim_IntList"]
)
def test_operators_are_atens_and_arithmetic_of_sizes(tmp_path, target):
    assert scan_program(write(tmp_path, document=graph(target)))[0] == SIGNATURE


def node(**fields):
    return {"document": graph(node=fields)}


def tree(**fields):
    return node(in_spec=json.dumps([1, {**fields, "children_spec": []}]))


OPERATORS = (
    *("torch.ops.aten.from_file.default", "torch.ops.aten.save.default", "torch.load"),
    *("torch.ops.higher_order.wrap_with_autocast", "torch.ops.prims.add.default"),
    *("torch.ops.aten.linear.default.__class__", "_operator.methodcaller", "#custom:op"),
    "os.system",
)
CODE_SIZES = (
    *("__import__('os').system('true')", "eval('1')", "s26.__class__", "Symbol('x.y')"),
    *("lambda: 1", "open", "[s26]", "s26; s67"),
)
ENDLESS_SIZES = ("9**9**9", "Pow(9, 9999999)", "9" * 20, "s26+" * 600 + "1")
CODE_NAMES = (
    {"name": CODE},
    {"inputs": [{"arg": {"as_tensor": {"name": CODE}}}]},
    {"outputs": [{"as_tensors": [{"name": 'w"+exit()+"'}]}]},
    {"forward_arg_names": [["mask", CODE]]},
    {"tensor_values": {CODE: {}}},
    {"name": "layer.__class__"},
)
ENTRIES = ("data/weights/model.pt", "data/aotinductor/model/a.so", "models/other.json", "../escape")
NAMED = {CONFIGURATIONS[0]: json.dumps({"config": {'w"+exit()+"': WEIGHT}})}
FQN = '[{"__enum__": true, "fqn": "os:x"}]'
LACKS = (
    {GRAPH_FILE: None},
    {GRAPH_FILE: b"no json"},
    {SIGNATURE_FILE: b"[]"},
    {CONFIGURATIONS[0]: b"{}"},
)
REFUSED = (
    *(({"document": graph(name)}, "is not of aten; build the engine again") for name in OPERATORS),
    *((node(**size(text)), "is no arithmetic") for text in CODE_SIZES),
    *((node(**size(text)), "too long, or of more than one power") for text in ENDLESS_SIZES),
    *((node(**fields), "is no name") for fields in CODE_NAMES),
    ({"changes": NAMED}, "is no name"),
    (tree(type="collections.OrderedDict", context="[]"), "have the type"),
    (tree(type="builtins.dict", context=FQN), "context"),
    ({"changes": {"data/weights/weight_0": b""}}, "has a shape and no values"),
    ({"document": graph(range_constraints={"exit()": {"min_val": 1}})}, "is no arithmetic"),
    ({"document": graph(guards_code=["exit()"])}, "guards, which run as Python"),
    (node(metadata={"stack_trace": "File x"}), "has metadata, which no run needs"),
    *(
        (node(inputs=[{"arg": {field: {"name": "x"}}}]), f"a value is {field}")
        for field in ("as_custom_obj", "as_graph", "as_operator")
    ),
    ({"config": {**WEIGHT, "use_pickle": True}}, r"tensor 'w' of .* is pickled"),
    ({"config": {**WEIGHT, "path_name": "custom_obj_0"}}, r"tensor 'w' of .* is pickled"),
    ({"changes": {SAMPLE_INPUTS: pickle.dumps(())}}, "its sample inputs are pickled"),
    *(({"changes": {name: b"x"}}, "is none of a program") for name in ENTRIES),
    ({"compression": zipfile.ZIP_DEFLATED}, "or compressed"),
    *(({"changes": changes}, "is no program of a build") for changes in LACKS),
)


@pytest.mark.parametrize(("program", "sentence"), REFUSED)
def test_refuses(tmp_path, program, sentence):
    with pytest.raises(ProgramRefused, match=sentence):
        scan_program(write(tmp_path, **program))


def test_torch_gets_no_bytes_of_no_entry(tmp_path):
    path = write(tmp_path)
    _, whole = scan_program(path)
    path.write_bytes(b"more" + path.read_bytes())
    assert scan_program(path)[1].getvalue() == whole.getvalue()


def test_refuses_a_second_directory_that_torch_would_read(tmp_path):
    path = write(tmp_path)
    data = path.read_bytes()
    size, place = struct.unpack("<4s4H2LH", data[-22:])[5:7]
    # Python reads the directory that ends here, torch the one at `place`.
    path.write_bytes(data[:-22] + data[place : place + size] + data[-22:])
    with pytest.raises(ProgramRefused, match="is no program of a build"):
        scan_program(path)


def test_refuses_an_entry_that_is_there_twice(tmp_path):
    path = write(tmp_path)
    with (
        zipfile.ZipFile(path, "a") as archive,
        pytest.warns(UserWarning, match="Duplicate name"),
    ):
        archive.writestr(f"model/{GRAPH_FILE}", json.dumps(graph()))
    with pytest.raises(ProgramRefused, match="is there twice"):
        scan_program(path)


def test_refuses_a_file_that_is_no_archive(tmp_path):
    path = tmp_path / "model.pt2"
    path.write_bytes(pickle.dumps({"weights": 1}))
    with pytest.raises(ProgramRefused, match="is no program of a build"):
        scan_program(path)
