"""Quantise an exported transformer, so that ONNX Runtime multiplies matrices and reads embeddings in int8.

Matrices and their inputs are quantised in blocks of 32 numbers with one scale per block. So the other texts in a batch
do not change a text's vector. Sums of integers are exact, so processors differ by rounding only. Each row of an
embedding table has one scale.

Shapes: I inputs, O outputs, B blocks, N numbers of a block, R rows of a table, M size of a vector.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

BLOCK, LARGEST, IN_INT8, FEW_ROWS = 32, 127, 4, 32
"""Numbers of a block, the largest integer, and the `accuracy_level` that also quantises activations. Tables of at most
FEW_ROWS rows stay in float32, such as T5's biases by distance."""
DOMAIN = "com.microsoft"


def quantise(source: Path, target: Path) -> None:
    """Write a copy of an ONNX file with constant matrices and tables in int8."""
    model = onnx.load(source)
    graph = model.graph
    floats = (tensor for tensor in graph.initializer if tensor.data_type == TensorProto.FLOAT)
    matrices = {tensor.name: tensor for tensor in floats if len(tensor.dims) == 2}
    tables = {name for name, tensor in matrices.items() if tensor.dims[0] > FEW_ROWS}
    made, nodes = dict[tuple[str, str], list[TensorProto]](), list[NodeProto]()
    for node in graph.node:
        if node.op_type == "MatMul" and (name := node.input[1]) in matrices:
            made[name, "MatMul"] = parts = made.get((name, "MatMul")) or _blocks(matrices[name])
            inputs = [node.input[0], *(tensor.name for tensor in parts)]
            sizes: dict[str, Any] = dict(zip("KN", matrices[name].dims, strict=True))
            sizes |= {"bits": 8, "block_size": BLOCK, "accuracy_level": IN_INT8}
            nodes.append(helper.make_node("MatMulNBits", inputs, list(node.output), domain=DOMAIN, **sizes))
        elif node.op_type == "Gather" and (name := node.input[0]) in tables and not any(a.i for a in node.attribute):
            made[name, "Gather"] = parts = made.get((name, "Gather")) or _rows(matrices[name])
            nodes += _looked_up(node, *(tensor.name for tensor in parts))
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    read = {name for node in graph.node for name in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    del graph.initializer[:]
    graph.initializer.extend([*kept, *(tensor for pair in made.values() for tensor in pair)])
    model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    onnx.save(model, target)


def _blocks(matrix: TensorProto) -> list[TensorProto]:
    """Quantise a matrix [i, o]. Returns integers plus 128 [o, b, n], and the scales [o·b] of the blocks."""
    matrix_IO = numpy_helper.to_array(matrix).astype(np.float32)
    padded_OI = np.pad(matrix_IO.T, ((0, 0), (0, -len(matrix_IO) % BLOCK)))
    block_OBN = padded_OI.reshape(len(padded_OI), -1, BLOCK)
    scale_OB1 = np.maximum(np.abs(block_OBN).max(axis=2, keepdims=True) / LARGEST, np.finfo(np.float32).tiny)
    integer_OBN = (np.rint(block_OBN / scale_OB1) + 128).astype(np.uint8)
    parts = {"int8": integer_OBN, "scales": scale_OB1.reshape(-1)}
    return [numpy_helper.from_array(part, f"{matrix.name}.{name}") for name, part in parts.items()]


def _rows(table: TensorProto) -> list[TensorProto]:
    """Quantise a table of vectors [r, m]. Returns integers [r, m], and the scales [r, 1] of the rows."""
    table_RM = numpy_helper.to_array(table).astype(np.float32)
    scale_R1 = np.maximum(np.abs(table_RM).max(axis=1, keepdims=True) / LARGEST, np.finfo(np.float32).tiny)
    parts = {"int8": np.rint(table_RM / scale_R1).astype(np.int8), "scales": scale_R1}
    return [numpy_helper.from_array(part, f"{table.name}.rows.{name}") for name, part in parts.items()]


def _looked_up(gather: NodeProto, integers: str, scales: str) -> list[NodeProto]:
    (name,), rows = gather.output, gather.input[1]
    return [
        helper.make_node("Gather", [integers, rows], [f"{name}.int8"]),
        helper.make_node("Cast", [f"{name}.int8"], [f"{name}.float"], to=TensorProto.FLOAT),
        helper.make_node("Gather", [scales, rows], [f"{name}.scales"]),
        helper.make_node("Mul", [f"{name}.float", f"{name}.scales"], [name]),
    ]
