"""Layers of a compiled network, counted in the builder's verbose log."""

from __future__ import annotations

from engine_build.onnx_graph.rtx import MIB, LayerLog

HALF, INT8 = "Datatype: Half, Format: (Linear) Row major", "Datatype: Int8, Format: (Linear)"


def layer(name, kind, inputs, constants=HALF, outputs=HALF):
    """A line of TensorRT-RTX 1.7.1's log, shortened."""
    return (
        f"Name: {name}, LayerType: {kind}, Inputs: [ {{ Name: x, Dimensions: [-1,384], {inputs} }}]"
        f", Constants: [ {{ Name: w, {constants} }}], Outputs: [ {{ Name: y, {outputs} }}], "
        "TacticName: , StreamId: 0, Metadata: "
    )


LOG = "\n".join(
    [
        "Layers:",
        "Name: [ShapeHostToDeviceCopy 0], LayerType: ShapeHostToDevice, Inputs: [], Outputs: "
        "[ { Name: g, Location: Device, Dimensions: [1], Datatype: Int64 }], StreamId: 0",
        "Name: __mye1, LayerType: shape_call, Inputs: [], Constants: [], Outputs: [], StreamId: 0",
        layer("norm and quantize", "kgen", HALF, outputs=INT8),
        layer("/layer.0/value/MatMul+/layer.0/query/MatMul_myl1_2", "gemm", INT8, INT8),
        layer("attention", "kgen", HALF),
        layer("/layer.0/output/MatMul", "gemm", HALF),
        layer("conv", "correlation", INT8, INT8),
        layer("copy", "Reformat", INT8),
        "",
        "I/O Tensors:",
        " Name: input_ids, IOMode: Input, DataType: Int64, Dimensions: [-1,-1], Location: Device",
    ]
)


def read(*messages):
    log = LayerLog()
    for message in messages:
        log.read(message)
    return log.counts()


def test_products_and_reformats_are_counted_and_what_runs_on_the_host_is_not():
    memory = f"Total Activation Memory: {32 * MIB + MIB // 2} bytes"
    assert read("Parsing node: x", LOG, memory) == {
        "layers": 6,
        "products": 3,
        "int8_products": 2,
        "reformats": 1,
        "activation_mib": 32.5,
    }


def test_only_what_a_layer_reads_makes_a_product_int8_and_no_layers_have_no_counts():
    line = layer("quantizes its result", "gemm", HALF, INT8, INT8)
    assert read(line)["int8_products"] == 0
    assert read("Engine generation completed", "Total Activation Memory: 5 bytes") is None
