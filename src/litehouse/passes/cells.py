"""Finds the steps of an LSTM that were written out one by one."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx_ir as ir

from litehouse.passes.sketch import is_fixed, only_maker, static_shape

SUMS = ("Add", "Sum")
PLAIN = {"alpha": 1.0, "beta": 1.0, "transA": 0}


@dataclass(frozen=True, slots=True)
class Product:
    """A value times a weight."""

    operand: ir.Value
    weight: ir.Value
    is_turned: bool  # whether the weight's first axis is that of the gates

    @property
    def columns(self) -> int:
        """How many columns the product has."""
        return (static_shape(self.weight) or (0, 0))[0 if self.is_turned else 1]


@dataclass(frozen=True, slots=True)
class Cell:
    """One step: the cell becomes forget * cell + input * new, and the state output * tanh(cell).

    Attributes:
        before: The cell before the step.
        after: The cell after it.
        state: The state after it.
        gates: Where the input, output, forget and new gates are among the four parts of the sums.
        products: What is summed up: of the step's input, and of the state before; in the order of the file.
        biases: What is added to them.
    """

    before: ir.Value
    after: ir.Value
    state: ir.Value
    gates: tuple[int, int, int, int]
    products: tuple[Product, Product]
    biases: tuple[ir.Value, ...]

    def is_like(self, other: Cell) -> bool:
        """Whether two steps differ in their operands alone."""
        weights, others = ([(each.weight, each.is_turned) for each in cell.products] for cell in (self, other))
        return self.gates == other.gates and self.biases == other.biases and set(weights) == set(others)

    def product_of(self, operand: ir.Value) -> Product | None:
        """The product that a value is in."""
        return next((each for each in self.products if each.operand is operand), None)


@dataclass(slots=True)
class Chain:
    """Steps one after the other."""

    cells: list[Cell]
    recurrent: Product | None = field(default=None)  # that of the state before, in the last step

    def parts(self, cell: Cell) -> tuple[Product, Product]:
        """The products of a step: of its input, and of the state before."""
        assert self.recurrent is not None
        first, second = cell.products
        return (second, first) if first.weight is self.recurrent.weight else (first, second)


def find_chains(graph: ir.Graph) -> list[Chain]:
    """All steps of a graph that follow one another."""
    chains: dict[ir.Value, Chain] = {}  # by the last cell
    for node in graph:
        cell = _find_cell(node) if node.op_type == "Add" and not node.domain else None
        if cell is None:
            continue
        chain = chains.get(cell.before)
        recurrent = None if chain is None else cell.product_of(chain.cells[-1].state)
        known = None if chain is None else chain.recurrent
        fits = known is None or (recurrent is not None and known.weight is recurrent.weight)
        if chain is not None and recurrent is not None and fits and cell.is_like(chain.cells[-1]):
            del chains[cell.before]
            chain.cells.append(cell)
            chain.recurrent = recurrent
        else:
            chain = Chain([cell])
        chains[cell.after] = chain
    return [chain for chain in chains.values() if len(chain.cells) > 1]


def _find_cell(total: ir.Node) -> Cell | None:
    """The step whose cell a sum gives."""
    after = total.outputs[0]
    showing = [user for tanh in after.consumers() if tanh.op_type == "Tanh" for user in tanh.outputs[0].consumers()]
    if len(showing) != 1:
        return None
    products = [only_maker(value, "Mul") for value in total.inputs]
    for keeping, writing in (products, products[::-1]):
        before, forget = _gated(keeping, "")
        new, entering = _gated(writing, "Tanh")
        cell, output = _gated(showing[0], "Tanh")
        gates = [entering, output, forget, new]
        split = None if new is None else new.producer()
        if before is None or cell is not after or split is None or not _is_even(split):
            continue
        if any(gate is None or gate.producer() is not split or len(gate.uses()) != 1 for gate in gates):
            continue
        places = [split.outputs.index(gate) for gate in gates if gate is not None]
        sums = _terms(split.inputs[0])
        if sums is not None and sorted(places) == [0, 1, 2, 3]:
            order = (places[0], places[1], places[2], places[3])
            return Cell(before, after, showing[0].outputs[0], order, *sums)
    return None


def _gated(product: ir.Node | None, op_type: str) -> tuple[ir.Value | None, ir.Value | None]:
    """What is multiplied with a gate, before the function if one is named; and the gate before its sigmoid."""
    if product is None or product.op_type != "Mul" or product.domain:
        return None, None
    for gate, other in (product.inputs, product.inputs[::-1]):
        sigmoid, inner = only_maker(gate, "Sigmoid"), only_maker(other, op_type)
        value = other if not op_type else None if inner is None else inner.inputs[0]
        if sigmoid is not None and value is not None:
            return value, sigmoid.inputs[0]
    return None, None


def _is_even(split: ir.Node) -> bool:
    """Whether a matrix is split into four equal parts of its columns."""
    axis, shapes = split.attributes.get("axis"), {static_shape(value) for value in split.outputs}
    if split.op_type != "Split" or split.domain or len(split.outputs) != 4 or axis is None or len(shapes) != 1:
        return False
    (shape,) = shapes
    return shape is not None and len(shape) == 2 and axis.as_int() in (-1, 1)


def _terms(value: ir.Value | None) -> tuple[tuple[Product, Product], tuple[ir.Value, ...]] | None:
    """The two products and the biases that a value is the sum of."""
    products: list[Product] = []
    biases: list[ir.Value] = []
    left = [value]
    while left:
        term = left.pop()
        node = only_maker(term, *SUMS, "Gemm", "MatMul")
        if node is None:
            if term is None or not is_fixed(term) or len(static_shape(term) or ()) != 1:
                return None
            biases.append(term)
        elif node.op_type in SUMS:
            left += node.inputs
        elif (product := _product(node)) is not None:
            products.append(product)
            left += node.inputs[2:]
        else:
            return None
    return ((products[0], products[1]), tuple(biases)) if len(products) == 2 else None


def _product(node: ir.Node) -> Product | None:
    given = {name: attribute.value for name, attribute in node.attributes.items()}
    is_turned = bool(given.pop("transB", 0))
    operand, weight = node.inputs[:2]
    if operand is None or weight is None or not is_fixed(weight) or len(static_shape(weight) or ()) != 2:
        return None
    if len(static_shape(operand) or ()) != 2 or any(given.get(name, plain) != plain for name, plain in PLAIN.items()):
        return None
    return Product(operand, weight, is_turned)
