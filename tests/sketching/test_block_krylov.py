"""Passes of a block Krylov method: what they find is what dense matrices show."""

import numpy as np
import pytest

from fastsketch.sketching._rereading import Product, block_krylov


def problem(d=120, n=300, seed=0):
    """Return A'A of rows whose spectrum falls, and orthonormal directions to begin with (8, d)."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, d)) * np.arange(1, d + 1) ** -0.7
    start = np.linalg.qr(rng.standard_normal((d, 8)))[0].T
    return rows.T @ rows, start


def multiplied(gram, asked):
    def multiply(q):
        asked.append(q.shape[1])
        return Product(gram @ q, float(np.trace(gram)), 300, float(np.trace(gram)))

    return multiply


@pytest.mark.parametrize("accuracy", [1e-2, 1e-8])
def test_pairs_are_as_near_as_their_residual(accuracy):
    gram, start = problem()
    asked = []
    space = block_krylov(multiplied(gram, asked), start, 3, width=6, most_passes=40, accuracy=accuracy)
    basis, products = space.basis, space.products.product
    assert np.allclose(basis @ basis.T, np.eye(len(basis)), atol=1e-12)
    assert np.allclose(products, gram @ basis.T, atol=1e-12 * np.trace(gram))
    assert np.array_equal(basis[:8], start) and asked[0] == 8 and set(asked[1:]) == {6}
    assert len(asked) == space.passes and space.residual <= accuracy
    found, true = np.linalg.eigvalsh(basis @ gram @ basis.T)[::-1][:3], np.linalg.eigvalsh(gram)[::-1][:3]
    assert (found <= true * (1 + 1e-12)).all() and (np.abs(found - true) <= space.residual * found + 1e-12).all()


def test_a_space_is_that_of_a_plain_block_krylov_method():
    """Of full width the space holds V, A'A V, (A'A)^2 V: its Ritz values are those of that basis made orthonormal."""
    gram, start = problem(d=60)
    space = block_krylov(multiplied(gram, []), start, 8, width=8, most_passes=3, accuracy=0.0)
    powers = np.hstack([start.T, gram @ start.T, gram @ gram @ start.T])
    q = np.linalg.qr(powers)[0]
    plain = np.linalg.eigvalsh(q.T @ gram @ q)[::-1]
    ours = np.linalg.eigvalsh(space.basis @ gram @ space.basis.T)[::-1]
    assert space.passes == 3 and np.allclose(ours[:8], plain[:8], rtol=1e-9)


def test_a_space_that_holds_all_rows_ends_the_passes():
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((50, 5)) @ rng.standard_normal((5, 40))
    space = block_krylov(
        multiplied(rows.T @ rows, []),
        np.linalg.qr(rng.standard_normal((40, 8)))[0].T,
        5,
        width=8,
        most_passes=9,
        accuracy=0.0,
    )
    assert space.passes <= 3 and len(space.basis) <= 40
    found = np.linalg.eigvalsh(space.basis @ rows.T @ rows @ space.basis.T)[::-1][:5]
    assert np.allclose(found, np.linalg.eigvalsh(rows @ rows.T)[::-1][:5], rtol=1e-10)
