"""Frequent Directions sketch of the decayed sum of G G' over the gradients G of a matrix, with an error bound.

The row buffer of the sketches of tensors is not used here: it has no decay, it holds several times as many rows as the
sketch keeps, and every shrink waits for the CPU, while an optimizer needs the directions after each step.
"""

import torch
from torch import Tensor

from fastsketch.torch._base import UNTYPED

# Number of random directions in addition to those kept, through which new directions are found.
EXTRA = 8


def draw(n: int, step: int, *, like: Tensor) -> Tensor:
    """Draw Gaussian random directions for a step, shape (n, EXTRA).

    They depend only on n and the step, not on the device or process.
    """
    generator = torch.Generator().manual_seed(step)
    directions = torch.randn(n, EXTRA, generator=generator, dtype=torch.float64)
    return directions.to(like.device, like.dtype)


def sketched(
    basis: Tensor, values: Tensor, lost: Tensor, gradient: Tensor, *, keep: float, step: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (basis (m, k), eigenvalues (k,), error bound ()) of a low-rank sketch of keep M + (1 - keep) G G'.
    M is the decayed sum of G G' over all gradients G before, of which the arguments are a sketch; they are not changed.

    A sketch of M has U diag(values) U' <= M <= U diag(values) U' + lost I. The matrix keep U diag(values) U' +
    (1 - keep) G G' is multiplied by U and some random directions. Its Nystrom approximation N is too small by at most
    the difference of the traces. As in Frequent Directions, the (k+1)-th eigenvalue of N is subtracted from the first
    k. The new `lost` adds both to keep times the old one.
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
