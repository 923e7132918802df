"""Sketch of one side of a matrix of gradients: U diag(values) U' <= sum of w G G' <= U diag(values) U' + lost I."""

import torch
from torch import Tensor

from fastsketch.torch._base import UNTYPED

# Random directions beside those that are kept: what has newly come is seen through them.
EXTRA = 8


def draw(n: int, step: int, *, like: Tensor) -> Tensor:
    """Return the random directions (n, EXTRA) of a step: the same on every device, process and resume."""
    generator = torch.Generator().manual_seed(step)
    directions = torch.randn(n, EXTRA, generator=generator, dtype=torch.float64)
    return directions.to(like.device, like.dtype)


def sketched(
    basis: Tensor, values: Tensor, lost: Tensor, gradient: Tensor, *, keep: float, step: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return basis (m, k), values (k,), lost () of keep (the sum so far) + (1 - keep) gradient gradient'.

    The matrix M = keep U diag(values) U' + (1 - keep) G G' is known by its products with U and some random directions:
    their Nystrom approximation N has 0 <= M - N <= trace(M - N) I. As in Frequent Directions the (k+1)-th value of
    N is taken off the first k. `lost` counts both, so that it bounds the sum of all gradients that were seen.
    """
    rank = len(values)
    # S = qr([U, random]); Z = M S
    tried = UNTYPED.linalg.qr(torch.cat([basis, draw(len(basis), step, like=basis)], dim=1))[0]
    product = keep * basis @ (values[:, None] * (basis.T @ tried)) + (1 - keep) * (gradient @ (gradient.T @ tried))
    trace = keep * values.sum() + (1 - keep) * gradient.square().sum()
    # N + shift I = Y (S'Y)^-1 Y', Y = Z + shift S
    shift = 8 * torch.finfo(basis.dtype).eps * trace + torch.finfo(basis.dtype).tiny
    product = product + shift * tried
    inner = tried.T @ product
    roots, vectors = UNTYPED.linalg.eigh((inner + inner.T) / 2)
    left, right = UNTYPED.linalg.qr(product @ (vectors / roots.clamp_min(shift / 2).sqrt()))
    turn, singular, _ = UNTYPED.linalg.svd(right)
    eigenvalues = (singular.square() - shift).clamp_min(0)
    outside = (trace - eigenvalues.sum()).clamp_min(0)
    lost = keep * lost + eigenvalues[rank] + outside
    return left @ turn[:, :rank], (eigenvalues[:rank] - eigenvalues[rank]).clamp_min(0), lost
