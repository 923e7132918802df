"""Passes of a block Krylov method: what they find is what dense matrices show."""

import numpy as np
import pytest

from fastsketch.sketching._rereading import Product, block_krylov, ritz_errors


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


@pytest.mark.parametrize("tol", [1e-2, 1e-8])
def test_pairs_are_as_near_as_they_are_said_to_be(tol):
    gram, start = problem()
    asked = []
    space = block_krylov(multiplied(gram, asked), start, 3, width=6, most_passes=40, tol=tol)
    basis, products = space.basis, space.products.product
    assert np.allclose(basis @ basis.T, np.eye(len(basis)), atol=1e-12)
    assert np.allclose(products, gram @ basis.T, atol=1e-12 * np.trace(gram))
    assert np.array_equal(basis[:8], start) and asked[0] == 8 and set(asked[1:]) == {6}
    assert len(asked) == space.passes and (space.errors <= tol / 2).all()
    found, true = np.linalg.eigvalsh(basis @ gram @ basis.T)[::-1][:3], np.linalg.eigvalsh(gram)[::-1][:3]
    # a Ritz value is below an eigenvalue, and within its residual of one (Parlett 1998, 4.5)
    assert (found <= true * (1 + 1e-12)).all() and (true - found <= space.residuals * found + 1e-12 * true).all()
    _, vectors = np.linalg.eigh(basis @ gram @ basis.T)
    pairs = basis.T @ vectors[:, ::-1][:, :3]
    sizes = np.linalg.norm(gram @ pairs - pairs * found, axis=0)
    assert np.allclose(space.residuals, sizes / found, atol=1e-10)


@pytest.mark.parametrize("exponent", [-0.25, -0.7, -1.5])
def test_the_estimated_error_of_ritz_values_is_above_the_error(exponent):
    rng = np.random.default_rng(2)
    gram = np.diag(np.arange(1, 201) ** (2 * exponent))
    q = np.linalg.qr(rng.standard_normal((200, 12)))[0]
    for _ in range(6):
        q = np.linalg.qr(gram @ q)[0]
        ritz, turn = np.linalg.eigh(q.T @ gram @ q)
        ritz, pairs = ritz[::-1], q @ turn[:, ::-1]
        sizes = np.linalg.norm(gram @ pairs - pairs * ritz, axis=0)
        errors = np.diag(gram)[:5] - ritz[:5]
        # the theorem asks for the largest eigenvalue beyond, which the next Ritz value approximates: a factor of 2
        assert (errors <= 2 * ritz_errors(ritz, sizes, 5) + 1e-14).all()


def test_equal_eigenvalues_count_as_one_cluster():
    ritz, sizes = np.array([2.0, 2.0, 1.0]), np.array([1e-3, 1e-3, 1e-3])
    assert ritz_errors(ritz, sizes[:2], 2) == pytest.approx([2e-6, 2e-6], rel=1e-2)
    # all three against 0, which follows
    assert ritz_errors(ritz, sizes, 3) == pytest.approx([1.5e-6, 1.5e-6, 3e-6], rel=1e-2)
    assert ritz_errors(np.array([1.0, 1.0]), np.array([1e-3]), 1) == pytest.approx([1e-3], rel=1e-2)  # no gap
    assert (ritz_errors(np.zeros(3), np.zeros(3), 3) == 0).all()


def test_a_space_is_that_of_a_plain_block_krylov_method():
    """Of full width the space holds V, A'A V, (A'A)^2 V: its Ritz values are those of that basis made orthonormal."""
    gram, start = problem(d=60)
    space = block_krylov(multiplied(gram, []), start, 8, width=8, most_passes=3, tol=0.0)
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
        tol=0.0,
    )
    assert space.passes <= 3 and len(space.basis) <= 40
    found = np.linalg.eigvalsh(space.basis @ rows.T @ rows @ space.basis.T)[::-1][:5]
    assert np.allclose(found, np.linalg.eigvalsh(rows @ rows.T)[::-1][:5], rtol=1e-10)
