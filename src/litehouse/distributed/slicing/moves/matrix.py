"""Products of matrices. A cut of a result's columns that lands in a weight is what is called column-parallel."""

from __future__ import annotations

from litehouse.distributed.slicing.cuts import Cut
from litehouse.distributed.slicing.moves.registry import Move, Site, moves, spread


@moves("MatMul")
def multiplies(site: Site, cut: Cut) -> Move | None:
    """Columns come from the second operand, rows from the first, matrices of a stack from both."""
    left, right, out = site.sizes(0), site.sizes(1), site.out_sizes()
    if left is None or right is None or out is None or min(len(left), len(right)) < 2:
        return None
    if cut.axis == len(out) - 1:
        return Move({1: cut.along(len(right) - 1)})
    if cut.is_padded:
        return None
    if cut.axis == len(out) - 2:
        return Move({0: cut.along(len(left) - 2)})
    found = spread(site, cut, (0, 1))
    return None if found is None else Move(found)


@moves("Gemm")
def gemm(site: Site, cut: Cut) -> Move | None:
    """Columns come from the second operand, rows from the first; the sum's third operand is spread."""
    found = spread(site, cut, (2,)) if site.opset >= 7 else None
    if found is None:
        return None
    if cut.axis == 1:
        found[1] = cut.along(0 if site.number("transB", 0) else 1)
    else:
        found[0] = cut.along(1 if site.number("transA", 0) else 0)
    return Move(found)


@moves("Einsum")
def einsum(site: Site, cut: Cut) -> Move | None:
    """The letter of the axis tells the operands' axes."""
    equation = site.text("equation").replace(" ", "")
    terms, arrow, result = equation.partition("->")
    names = terms.split(",")
    if not arrow or "." in equation or cut.is_padded or any(len(set(name)) != len(name) for name in names):
        return None
    letter = result[cut.axis]
    found = {place: cut.along(name.index(letter)) for place, name in enumerate(names) if letter in name}
    for place, own in found.items():
        sizes = site.sizes(place)
        if sizes is None or sizes[own.axis] != cut.size:
            return None
    return Move(found)


@moves("MatMulInteger")
def multiplies_integers(site: Site, cut: Cut) -> Move | None:
    """Columns come from the second operand, and from its zeros where each column has its own."""
    left, right, out, zeros = site.sizes(0), site.sizes(1), site.out_sizes(), site.sizes(3)
    if left is None or right is None or out is None or min(len(left), len(right)) < 2 or cut.is_padded:
        return None
    if cut.axis != len(out) - 1 or (site.has(3) and (zeros is None or len(zeros) > 1)):
        return None
    own = {3: cut.along(0)} if zeros and zeros[0] != 1 else {}
    return Move({1: cut.along(len(right) - 1)} | own)
