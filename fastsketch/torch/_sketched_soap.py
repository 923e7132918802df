"""``SketchedSOAP``: the Adam optimizer in the leading singular directions of the gradients, tracked by sketches."""

import math
from typing import Any, Literal, TypedDict, cast

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from fastsketch._core.validation import MOST_SIZE, as_integer, as_real
from fastsketch._frame.keywords import named_keywords
from fastsketch.torch._base import UNTYPED, GuardedOptimizer, check_shared, compute_dtype, tensors, usable_eps
from fastsketch.torch._side import EXTRA, sketched

# With sketched="auto" a tensor has Adam if the squares of its first gradient are concentrated in less than this share
# of its rows or columns, (sum of s)^2 / (number * sum of s^2). Embeddings and output layers for many words have .001 to
# .005, hidden matrices and filters .08 to .9. Rare words share one direction, in which a step moves each of them far
# less than Adam does.
EVEN = 1 / 32
# A sketch of squares resolves directions only up to the square root of machine epsilon. That share of a low-rank
# gradient is left in the remainder, and Adam would scale it up to steps of the usual length. Therefore FLOOR times that
# share of the gradient's root mean square is added to the root of each mean square.
FLOOR = 4
# A step of length lr in one direction changes the matrix by lr, while Adam, which changes every element by lr, changes
# it by sqrt(m n) lr. At small rates learning would be slow. Steps in directions are therefore longer by LONGER times (m
# n)^(1/4), about Muon's factor; chosen on validation parts at three rates.
LONGER = 0.2
LEFT = ("left_basis", "left_values", "left_lost")
RIGHT = ("right_basis", "right_values", "right_lost")
# Largest deviation of V'V from the identity in a basis that is loaded.
STRAIGHT = 1e-3


class TensorFacts(TypedDict):
    """Summary of one parameter's state in an optimizer: kind, bytes and error bounds."""

    group: int
    shape: tuple[int, ...]
    kind: Literal["sketch", "adam"]
    bytes: int  # size of the state
    lost: tuple[float, float] | None  # shares of the gradients' squares


@named_keywords
class SketchedSOAP(GuardedOptimizer):
    """SOAP optimizer with sketched preconditioners: Adam in the leading directions of the gradients.

    For the gradients G of a matrix (m, n) it tracks the leading directions U_L (m, k) of the decayed sum of G G', and
    U_R (n, k) of that of G'G. Adam's moments and steps are computed for U_L'G U_R, for the remainders of U_L'G and of G
    U_R, and for the elements of the remainder of G. Steps in directions are max(1, (m n)^(1/4) / 5) times as long.

    Parameters
    ----------
    params : iterable
        Tensors, named tensors, or groups with options of their own.
    lr : float, default 0.001
        Learning rate, as for Adam.
    betas : tuple of two floats, default (0.9, 0.999)
        Decay rates of the mean and of the mean square of gradients, as for Adam.
    eps : float, default 1e-8
        Added to the root mean square of an element. For a sketched tensor 4 sqrt(machine epsilon) times the root mean
        square of all elements is added as well, since a sketch knows directions no better than that.
    weight_decay : float, default 0.01
        Decoupled weight decay, as in AdamW: a step subtracts lr times this share of the parameters.
    maximize : bool, default False
    sketched : {"auto", True, False}
        Whether the tensors of a group are sketched. "auto" sketches those whose first gradient spreads its squares over
        more than a 32nd of its rows and of its columns, like hidden matrices and filters; embeddings and output layers
        for many words do not. All others have AdamW, and so do tensors with a side of at most rank + 8 or of fewer than
        two dimensions. Tensors of more dimensions are treated as matrices, first dimension by all others.
    rank : int, default 16
        Number k of directions of a side.
    sketch_beta : float, default 0.99
        Decay rate of the sums of G G' and G'G, for each step.
    every : int, default 10
        Only every so many steps a gradient updates the sketches.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range.

    Notes
    -----
    ``torch.optim.Muon`` has half the state, and a lower loss on a transformer when its learning rate is tuned.

    The state has 2 m n + 2 k (m + n) + k^2 numbers, Adam's 2 m n. A step costs about 40 k m n operations, and each
    update of the sketches two QR factorisations of k + 8 columns. The state is float32, or float64 for float64
    parameters.

    A step runs uncompiled inside a function that torch compiles. ``foreach`` and similar options do not exist. Shards
    of a tensor (DTensor) are refused. Processes with the same gradients, as with DistributedDataParallel, make the same
    steps.

    A sketch has 0 <= L - U_L diag(left_values) U_L' <= left_lost I, where L is the decayed sum of the G G' that it has
    learned; ``optimizer.state[p]`` contains all of these. Gradients that may be longer than 7e16 (float64: 7e134) are
    refused, as by ``AdaFFD``.

    References
    ----------
    Vyas and others, "SOAP: Improving and Stabilizing Shampoo using Adam", 2024. Feinberg and others, "Sketchy:
    Memory-efficient Adaptive Regularization with Frequent Directions", NeurIPS 2023.

    Examples
    --------
    >>> import torch
    >>> from fastsketch.torch import SketchedSOAP
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 10))
    >>> optimizer = SketchedSOAP(model.parameters(), lr=3e-3)
    >>> x, y = torch.randn(256, 64), torch.randint(10, (256,))
    >>> for _ in range(60):
    ...     optimizer.zero_grad()
    ...     loss = torch.nn.functional.cross_entropy(model(x), y)
    ...     loss.backward()
    ...     _ = optimizer.step()
    >>> loss.item() < 1.0
    True
    >>> [(state["shape"], state["kind"]) for state in optimizer.facts()]
    [((48, 64), 'sketch'), ((48,), 'adam'), ((10, 48), 'adam'), ((10,), 'adam')]
    """

    _SUMS = ("squares", *LEFT[1:], *RIGHT[1:], "seen")

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.001,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        maximize: bool = False,
        sketched: Literal["auto"] | bool = "auto",
        rank: int = 16,
        sketch_beta: float = 0.99,
        every: int = 10,
    ) -> None:
        options: dict[str, Any] = {
            "lr": lr,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "maximize": maximize,
        }
        options |= {"sketched": sketched, "rank": rank, "sketch_beta": sketch_beta, "every": every}
        super().__init__(params, options)

    def _check(self, group: dict[str, Any]) -> None:
        check_shared(group)
        betas: Any = group["betas"]
        if not isinstance(betas, tuple | list) or len(cast("list[Any]", betas)) != 2:
            raise ValueError(f"betas must be two numbers, got {betas!r}")
        betas = cast("list[Any]", betas)
        for name, value in (("betas", betas[0]), ("betas", betas[1]), ("sketch_beta", group["sketch_beta"])):
            as_real(value, name, 0.0, 1.0, high_open=True)
        as_integer(group["rank"], "rank", 1, MOST_SIZE)
        as_integer(group["every"], "every", 1, MOST_SIZE)

    def facts(self) -> list[TensorFacts]:
        """Return a list of dicts that describe each parameter's state: kind, bytes, error bounds of its sketches.

        Returns
        -------
        list of dict
            In the order of the parameters: group, shape, kind ("sketch" or "adam"; before the first step what the shape
            allows), bytes of state, and lost. ``lost`` has for the left and the right side the bound on what the sketch
            lacks, as a share of the decayed sum of squares of the gradients; None without a sketch and before the first
            step.
        """
        out: list[TensorFacts] = []
        for i, group in enumerate(self.param_groups):
            for p in tensors(group):
                known: dict[str, Any] = self.state.get(p) or self._begin(group, p, torch.device("meta"))
                entry: TensorFacts = {
                    "group": i,
                    "shape": tuple(p.shape),
                    "kind": "sketch" if "seen" in known else "adam",
                    "bytes": sum(value.nbytes for value in known.values() if isinstance(value, Tensor)),
                    "lost": None,
                }
                if "seen" in known and known["step"]:
                    entry["lost"] = (
                        float(known["left_lost"] / known["seen"]),
                        float(known["right_lost"] / known["seen"]),
                    )
                out.append(entry)
        return out

    def _begin(self, group: dict[str, Any], p: Tensor, device: torch.device) -> dict[str, Any]:
        """Return the initial state of a parameter: Adam's moments, and two sketches if it is large enough."""
        options: Any = {"dtype": compute_dtype(p.dtype), "device": device}
        if not _is_long(group, p):
            return {"step": 0, **{name: torch.zeros(p.shape, **options) for name in ("momentum", "squares")}}
        m, n, k = len(p), p.numel() // len(p), group["rank"]
        shapes: dict[str, tuple[int, ...]] = {"momentum": tuple(p.shape), "squares": (k + m, k + n)}
        shapes |= {"left_values": (k,), "right_values": (k,), "left_lost": (), "right_lost": (), "seen": ()}
        state: dict[str, Any] = {name: torch.zeros(shape, **options) for name, shape in shapes.items()}
        bases = {"left_basis": torch.eye(m, k, **options), "right_basis": torch.eye(n, k, **options)}
        return {"step": 0, **state, **bases}

    def _check_state(self, group: dict[str, Any], p: Tensor, known: dict[str, Any]) -> None:
        super()._check_state(group if "seen" in known else {**group, "sketched": False}, p, known)
        for name in (LEFT[0], RIGHT[0]) if "seen" in known else ():
            basis = cast(Tensor, known[name])
            if basis.is_meta:
                continue
            if not (basis.T @ basis - torch.eye(basis.shape[1]).to(basis)).abs().max() < STRAIGHT:
                where = f"state {name!r} of a parameter of shape {tuple(p.shape)}"
                raise ValueError(f"{where} must have orthonormal columns")

    def _prepare(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> Tensor:
        """Return a gradient in the dtype of the optimizer's state, negated with maximize=True.

        RuntimeError if the parameter's shape or dtype has changed.
        """
        g = self._gradient(group, p, grad)
        known: dict[str, Any] = self.state.get(p, {})
        if known and known["momentum"].shape != p.shape:
            was = tuple(known["momentum"].shape)
            raise RuntimeError(f"a parameter of shape {was} has become one of shape {tuple(p.shape)}")
        if known and known["momentum"].dtype != g.dtype:
            was = known["momentum"].dtype
            raise RuntimeError(f"the state of a parameter is {was}, and it has become one of {p.dtype}")
        return g

    def _move(self, group: dict[str, Any], p: Tensor, g: Tensor) -> None:
        state: dict[str, Any] = self.state[p]
        if not state:
            left = group["sketched"] == "auto" and _is_long(group, p) and not _is_even(g.reshape(len(p), -1))
            state.update(self._begin({**group, "sketched": False} if left else group, p, p.device))
        state["step"] += 1
        state["momentum"].lerp_(g, 1 - group["betas"][0])
        eps = usable_eps(group["eps"], g.dtype)
        if "seen" not in state:
            move = _adam(group, state, g, state["momentum"], eps)
        else:
            g = g.reshape(len(p), -1)
            if (state["step"] - 1) % group["every"] == 0:
                _turn(state, g, keep=group["sketch_beta"] ** group["every"])
            move = _rotated(group, state, g, eps)
        lr = float(group["lr"])
        # p itself, or for half precision a wider copy, which is rounded once
        weights = p.to(move.dtype)
        weights.mul_(1 - lr * group["weight_decay"]).sub_(move.mul_(lr).reshape(p.shape))
        if weights is not p:
            p.copy_(weights)


def _is_long(group: dict[str, Any], p: Tensor) -> bool:
    """Return True if a parameter may be sketched: its matrix has more than rank + EXTRA rows and columns."""
    if p.ndim < 2 or p.numel() == 0 or group["sketched"] is False:
        return False
    return min(len(p), p.numel() // len(p)) > group["rank"] + EXTRA


def _is_even(g: Tensor) -> bool:
    """Return True if the squares of a gradient matrix are spread over enough of its rows and columns.

    "Enough" is the share EVEN of both.
    """
    squares = (g / g.abs().max()).square()
    for sums in (squares.sum(0), squares.sum(1)):
        if sums.sum().square() < EVEN * len(sums) * sums.square().sum():
            return False
    return True


def _adam(group: dict[str, Any], state: dict[str, Any], g: Tensor, momentum: Tensor, eps: float) -> Tensor:
    """Update Adam's mean squares in place with a gradient, and return Adam's step for learning rate 1."""
    beta1, beta2 = group["betas"]
    t = state["step"]
    squares = cast(Tensor, state["squares"])
    squares.mul_(beta2).addcmul_(g, g, value=1 - beta2)
    root = squares.sqrt().div_(math.sqrt(1 - beta2**t)).add_(eps)
    if "seen" in state:
        share = FLOOR * math.sqrt(torch.finfo(root.dtype).eps / root.numel())
        root.add_(UNTYPED.linalg.vector_norm(root), alpha=share)
    return UNTYPED.div(momentum, root.mul_(1 - beta1**t), out=root)


def _turn(state: dict[str, Any], g: Tensor, *, keep: float) -> None:
    """Update the sketches of rows and columns with a gradient, and transform Adam's mean squares to the new bases.

    `state` is changed in place.

    With O = U_old'U_new, a new direction gets shares O o O of the mean squares of the old directions. For the remainder
    of the direction it gets the mean squares of the elements, weighted by their squares.
    """
    squares = cast(Tensor, state["squares"])
    for names, side, by_row in ((LEFT, g, squares), (RIGHT, g.T, squares.T)):
        old, values, lost = (cast(Tensor, state[name]) for name in names)
        new = sketched(old, values, lost, side, keep=keep, step=state["step"])
        state.update(zip(names, new, strict=True))
        k = len(values)
        kept = (old.T @ new[0]).square()
        rest = (1 - kept.sum(0)).clamp_min(0) * new[0].square()
        by_row[:k] = kept.T @ by_row[:k] + rest.T @ by_row[k:]
    state["seen"] = keep * state["seen"] + (1 - keep) * g.square().sum()


def _rotated(group: dict[str, Any], state: dict[str, Any], g: Tensor, eps: float) -> Tensor:
    """Return Adam's step for a gradient, computed along the sketched directions and elementwise for the remainder.

    The mean squares in `state` are updated.
    """
    u, v = cast(Tensor, state["left_basis"]), cast(Tensor, state["right_basis"])
    k = u.shape[1]
    step = _adam(group, state, _parts(g, u, v), _parts(state["momentum"].view(g.shape), u, v), eps)
    longer = max(1.0, LONGER * g.numel() ** 0.25)
    step[:k].mul_(longer)
    step[k:, :k].mul_(longer)
    both, left, right, rest = step[:k, :k], step[:k, k:], step[k:, :k], step[k:, k:]
    # U both V' + U left (I - V V') + (I - U U') right V' + (I - U U') rest (I - V V')
    left = left - u.T @ rest
    both = both - left @ v - u.T @ right
    out = UNTYPED.addmm(rest, u, UNTYPED.addmm(left, both, v.T))
    return out.addmm_(right - rest @ v, v.T)


def _parts(g: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """Return a gradient (m, n) in the bases u (m, k) and v (n, k), with remainders, as one matrix (k + m, k + n).

    They are [[U'G V, remainder of U'G], [remainder of G V, remainder of G]], where remainders are orthogonal to V or U.
    """
    k = u.shape[1]
    out = g.new_empty(k + g.shape[0], k + g.shape[1])
    left, right = u.T @ g, g @ v
    both = left @ v
    beside = right - u @ both
    out[:k, :k], out[k:, :k] = both, beside
    out[:k, k:] = left - both @ v.T
    UNTYPED.addmm(UNTYPED.addmm(g, u, left, alpha=-1), beside, v.T, alpha=-1, out=out[k:, k:])
    return out
