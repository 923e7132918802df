"""Product of a sparse matrix with eight vectors, and of its transpose with the result: the inner loop of GLRL.

Numba compiles it to a C function. `multiply_parts` of gradients.pyx calls this function through a pointer for blocks of
rows, on several threads. The matrix is in CSR with unsigned 32-bit indices. All values are float32, or all are float64.
"""

# pyright: basic
# Numba has no types; what Python calls is typed in block_loop.pyi.

import numpy as np

from fastsketch._kernels.jit import c_function, intrinsic, ir, types

WIDTH = 8


@intrinsic
def add_scaled(typing_context, y, j, scale, x, i):
    """Add scale * x[i : i + 8] to y[j : j + 8] with vector instructions, which Numba does not use for a loop over 8."""

    def emit(context, builder, signature, arguments):
        y, j, scale, x, i = arguments
        vector, align = ir.VectorType(scale.type, WIDTH), context.get_abi_sizeof(scale.type)
        to, of = (builder.bitcast(builder.gep(p, [k]), vector.as_pointer()) for p, k in ((y, j), (x, i)))
        index, undefined = ir.IntType(32), ir.Constant(vector, ir.Undefined)
        scales = builder.insert_element(undefined, scale, ir.Constant(index, 0))
        scales = builder.shuffle_vector(scales, scales, ir.Constant(ir.VectorType(index, WIDTH), [0] * WIDTH))
        product = builder.fmul(scales, builder.load(of, align=align), flags=["contract"])
        builder.store(builder.fadd(builder.load(to, align=align), product, flags=["contract"]), to, align=align)
        return context.get_dummy_value()

    return types.void(y, types.int64, scale, x, types.int64), emit


def multiply(first, stop, indptr, indices, a, v, u, w):
    """Write A v to u and add A'u to w, for the rows of A from first to stop - 1; u, v and w have eight columns."""
    for i in range(first, stop):
        for q in range(WIDTH):
            u[WIDTH * i + q] = 0.0
        for k in range(indptr[i], indptr[i + 1]):
            add_scaled(u, WIDTH * i, a[k], v, WIDTH * indices[k])
        for k in range(indptr[i], indptr[i + 1]):
            add_scaled(w, WIDTH * indices[k], a[k], u, WIDTH * i)


_compiled = {}


def address(dtype):
    """Return the address of the C function for values of a dtype. The first call compiles it."""
    name = np.dtype(dtype).name
    if name not in _compiled:
        size, indices, values = types.int64, types.CPointer(types.uint32), types.CPointer(getattr(types, name))
        _compiled[name] = c_function(multiply, types.void(size, size, indices, indices, *[values] * 4))
    return _compiled[name].address
