"""Programs of a GPU machine that has no GPU.

Trtexec and nvidia-smi, with the words and files of the real ones.

What they write follows NVIDIA/TensorRT's samples at v10.16 and v11.1 (logging.h, printPlanVersion,
exportJSONTrace) and the inspector's documented JSON. `python stand_in_gpu.py PROGRAM ARGUMENT...`;
the machine is described by machine.json beside it. A "plan" is the real plan's first 28 bytes, then
JSON that the stand-in for TensorRT's runtime can run.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import signal
import struct
import sys
from pathlib import Path

FLAGS = Path(__file__).resolve().parents[1] / "data"
DEFAULTS = {
    "gpus": ["NVIDIA A10G, 580.95.05, 8.6"],
    "version": [10, 16, 1, 11],
    "plan_version": None,
    "loses_int8": False,
    "breaks_at": None,
    "functions": None,
}


def main(program, arguments, machine):
    """The exit code."""
    if program == "nvidia-smi":
        print("\n".join(machine["gpus"]) or "No devices were found")
        return 0 if machine["gpus"] else 6
    major, minor, patch, build = machine["version"]
    name = f"TensorRT.trtexec [TensorRT v{major * 10000 + minor * 100 + patch}] [b{build}]"
    print(f"&&&& RUNNING {name} # {' '.join(['trtexec', *arguments])}", flush=True)
    try:
        loads_plugins(arguments)
    except OSError as error:
        return failed(f"Could not load library: {error}")
    code = run(dict(argument.partition("=")[::2] for argument in arguments), machine)
    print(f"&&&& {'FAILED' if code else 'PASSED'} {name} # {' '.join(['trtexec', *arguments])}")
    return code


def run(options, machine):
    """Trtexec."""
    dialect = 11 if machine["version"][0] >= 11 else 10
    lines = (FLAGS / f"trtexec_flags_{dialect}.txt").read_text().splitlines()
    unknown = sorted(set(options) - {line.split()[0] for line in lines if line[0] == "-"})
    if unknown:
        return failed(f"Unknown option: {unknown[0]} ")
    if "--help" in options:
        print("=== Model Options ===")
        return 0
    if "--onnx" in options:
        return build(options, machine)
    plan = Path(options["--loadEngine"]).read_bytes()
    if plan[:4] != b"ftrt":
        return failed("Failed to verify a plan tag.")
    if "--getPlanVersionOnly" in options:
        log(f"Plan was created with TensorRT version {'.'.join(map(str, plan[24:28]))}")
        return 0
    return measure(options, json.loads(plan[28:]), machine, dialect)


def loads_plugins(arguments):
    """--staticPlugins, each by dlopen; the last of an option alone is in `options`."""
    libraries = [item.partition("=")[2] for item in arguments if item.startswith("--staticPl")]
    for library in libraries:
        ctypes.CDLL(library)
        log(f"Loading supplied plugin library: {library}")
    return libraries


def with_functions(network, source):
    """The network as ONNX Runtime can play it: what a plugin computes is a function of `source`."""
    import onnx

    model = onnx.load(network)
    assert not model.functions, "TensorRT's parser would take these before any plugin"
    model.functions.extend(onnx.load(source).functions)
    played = f"{network}.played"
    onnx.save(model, played)
    return played


def build(options, machine):
    """--onnx --saveEngine."""
    cache = options.get("--timingCacheFile")
    if cache and Path(cache).is_file() and not Path(cache).read_bytes().startswith(b"timings"):
        log("Failed to create ITimingCache from file " + cache, "E")
        sys.stdout.flush()
        os.kill(os.getpid(), signal.SIGSEGV)
    if machine["breaks_at"] == "compile":
        return failed("Error Code 9: Skipping tactic 0x0 due to insufficient memory")
    import onnx

    network, graph = options["--onnx"], onnx.load(options["--onnx"]).graph
    if machine["functions"]:
        network = with_functions(network, machine["functions"])
    constants = {weight.name for weight in graph.initializer}
    quantized = sum(node.op_type == "QuantizeLinear" for node in graph.node)
    body = {
        "network": network,
        "inputs": [value.name for value in graph.input if value.name not in constants],
        "outputs": [value.name for value in graph.output],
        "shapes": {kind: options[f"--{kind}Shapes"] for kind in ("min", "opt", "max")},
        "nodes": len(graph.node),
        "has_code": "--versionCompatible" in options,
        "int8": 0 if machine["loses_int8"] else quantized or 3 * ("--calib" in options),
    }
    version = machine["plan_version"] or machine["version"]
    header = b"ftrt" + struct.pack("<I", 0) + bytes(16) + bytes(version)
    Path(options["--saveEngine"]).write_bytes(header + json.dumps(body).encode())
    if cache:
        Path(cache).write_bytes(b"timings of " + str(version).encode())
    log("Engine built in 1.2 sec.")
    return 0


def measure(options, plan, machine, dialect):
    """--loadEngine, with the files it exports."""
    if machine["breaks_at"] == "run":
        return failed("enqueueV3: Error Code 1: Cuda Runtime (an illegal memory access)")
    if plan["has_code"] and "--versionCompatible" not in options:
        return failed("Engine deserialization failed")
    shapes = dict(pair.rsplit(":", 1) for pair in options["--shapes"].split(","))
    for name, file in (pair.rsplit(":", 1) for pair in options["--loadInputs"].split(",")):
        if Path(file).stat().st_size != 8 * math.prod(map(int, shapes[name].split("x"))):
            return failed(f"Unexpected file size for input file: {file}.")
    Path(options["--exportLayerInfo"]).write_text(json.dumps(inspected(plan, dialect)))
    rows = [{"computeMs": 1.25, "latencyMs": 1.25 + index / 1000} for index in range(9)]
    Path(options["--exportTimes"]).write_text(json.dumps(rows))
    log("Throughput: 800.12 qps")
    return 0


def inspected(plan, dialect):
    """The inspector's JSON."""
    layers = [
        layer(index, "Int8" if index < plan["int8"] else "Half") for index in range(plan["nodes"])
    ]
    if dialect == 10:
        return {"Layers": layers, "Bindings": [*plan["inputs"], *plan["outputs"]]}
    ranges = {"MinShape": [1, 4], "OptShape": [2, 8], "MaxShape": [4, 16]}
    tensors = [
        {"Name": name, "IOMode": mode, "DataType": kind, "ProfileInfo": [ranges]}
        for mode, kind in (("Input", "Int64"), ("Output", "Float"))
        for name in plan[f"{mode.lower()}s"]
    ]
    return {"Layers": layers, "I/O Tensors": tensors}


def layer(index, kind):
    """One layer of a plan built with detailed verbosity."""
    tensors = [{"Name": f"t{index}", "Location": "Device", "Format/Datatype": kind}]
    fields = {"LayerType": "gemm", "TacticName": "sm80_xmma"}
    return {"Name": f"__myl_{index}", "Inputs": tensors, "Outputs": tensors, **fields}


def failed(reason):
    """The code of a failure, and its words."""
    log(reason, "E")
    return 1


def log(text, severity="I"):
    """One line of the log."""
    stream = sys.stderr if severity == "E" else sys.stdout
    print(f"[11/21/2026-09:00:00] [{severity}] {text}", file=stream)


if __name__ == "__main__":
    described = json.loads(Path(sys.argv[1]).read_text())
    sys.exit(main(sys.argv[2], sys.argv[3:], {**DEFAULTS, **described}))
