"""Adam in the leading directions of both sides of a matrix, which Frequent Directions keeps, and in its elements."""

import math
from typing import Any, Literal, TypedDict, cast

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from fastsketch._core.validation import as_integer, as_real
from fastsketch._frame.keywords import named_keywords
from fastsketch.torch._base import UNTYPED, GuardedOptimizer, check_shared, compute_dtype, tensors, usable_eps
from fastsketch.torch._side import EXTRA, sketched

# With sketched="auto" a tensor is left to Adam where the squares of its first gradient are as uneven over rows or over
# columns as if fewer than this share of them had all, alike. Embeddings and heads of many words have .001 to .005,
# hidden matrices and filters .08 to .9. Rare words are one direction together, in which a step moves each far less than
# Adam's own.
EVEN = 1 / 32
# A sketch knows a direction up to the root of its dtype's epsilon, since its matrix is a sum of squares: so much of a
# gradient of low rank is left outside, and Adam would make steps of the usual length of it. So this many times that
# share of the whole gradient, spread over all elements, is added to the root of each mean square.
FLOOR = 4
# A step of lr in a direction moves what all elements have in common by lr, where Adam, which moves each element by lr,
# moves it by the root of m n times as much: at small rates nothing would be learned for long. Steps in directions are
# therefore longer by this times the fourth root of m n, about Muon's factor; chosen on validation parts at three rates.
LONGER = 0.2
LEFT = ("left_basis", "left_values", "left_lost")
RIGHT = ("right_basis", "right_values", "right_lost")
# Of a basis that steps have left, what V'V lacks of the identity.
STRAIGHT = 1e-3


class TensorFacts(TypedDict):
    """What an optimizer knows of one parameter."""

    group: int
    shape: tuple[int, ...]
    kind: Literal["sketch", "adam"]
    bytes: int  # of state
    lost: tuple[float, float] | None  # shares of the gradients' squares


@named_keywords
class SketchedSOAP(GuardedOptimizer):
    """Adam in the directions of the gradients: SOAP with sketches of both sides in place of whole matrices.

    Of the gradients G of a matrix (m, n) it follows the leading directions U_L (m, k) of the sum of G G' and U_R (n, k)
    of that of G'G, older ones counting less. Adam's moments and steps are those of U_L'G U_R, of the rest of U_L'G and
    of G U_R, and of the elements of what is left of G; those in directions are max(1, (m n)^(1/4) / 5) times as long.

    Parameters
    ----------
    params : iterable
        Tensors, named tensors, or groups with options of their own.
    lr : float, default 0.001
        Learning rate, that of Adam.
    betas : tuple of two floats, default (0.9, 0.999)
        Shares of the mean and of the mean square of gradients that stay from step to step, as of Adam.
    eps : float, default 1e-8
        Added to the root of the mean square of an element. Of a sketched tensor 4 sqrt(machine epsilon) of the root
        mean square of all elements is added, too, since a sketch knows no direction better than that.
    weight_decay : float, default 0.01
        A step takes lr times this share off the parameters, apart from the gradient, as AdamW does.
    maximize : bool, default False
    sketched : {"auto", True, False}
        Whether the tensors of a group are sketched; "auto": those whose first gradient has its squares in more than a
        32nd of its rows, and of its columns, as hidden matrices and filters have, embeddings and heads of many words
        have not. All others, and always those with a side of at most rank + 8 and those of fewer than two dimensions,
        have AdamW. Tensors of more dimensions are matrices of the first by all others.
    rank : int, default 16
        k, directions of a side.
    sketch_beta : float, default 0.99
        Share of the sums of G G' and G'G that stays from step to step.
    every : int, default 10
        Steps from one gradient that enters the sketches to the next.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range.

    Notes
    -----
    ``torch.optim.Muon`` holds half the state, and has the lower loss on a transformer where its rate is searched.

    State is 2 m n + 2 k (m + n) + k^2 numbers where Adam's is 2 m n; a step costs some 40 k m n operations, and every
    ``every``-th two QR factorisations of k + 8 columns. State is float32, for float64 parameters float64.

    A step runs as it is within a function that torch compiles. ``foreach`` and the like are not offered, shards of a
    tensor (DTensor) are refused; processes that have the same gradients, as those of DistributedDataParallel, have the
    same steps.

    A sketch has 0 <= L - U_L diag(left_values) U_L' <= left_lost I, where L is the weighted sum of the G G' that it has
    seen; ``optimizer.state[p]`` has all of these. Gradients that may be longer than 7e16 (float64: 7e134) are refused,
    as by AdaFFD.

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
        as_integer(group["rank"], "rank", 1)
        as_integer(group["every"], "every", 1)

    def facts(self) -> list[TensorFacts]:
        """Return what is known of each parameter, in their order.

        Returns
        -------
        list of dict
            group, shape, kind ("sketch" or "adam"; before the first step what the shape allows) and its bytes of state,
            and lost, for the
            left and the right side the bound on what its sketch lacks, as a share of the weighted sum of the squares of
            the gradients that it has seen; None without a sketch and before the first step.
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
        """Return the state of a parameter before its first gradient."""
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
        """Return the gradient in the dtype of the state."""
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
        # p itself, but where it is of half precision: that is rounded once
        weights = p.to(move.dtype)
        weights.mul_(1 - lr * group["weight_decay"]).sub_(move.mul_(lr).reshape(p.shape))
        if weights is not p:
            p.copy_(weights)


def _is_long(group: dict[str, Any], p: Tensor) -> bool:
    """Return whether both sides are long enough for a sketch."""
    if p.ndim < 2 or p.numel() == 0 or group["sketched"] is False:
        return False
    return min(len(p), p.numel() // len(p)) > group["rank"] + EXTRA


def _is_even(g: Tensor) -> bool:
    """Return whether the squares of a gradient (m, n) lie in more than some of its rows and of its columns."""
    squares = (g / g.abs().max()).square()
    for sums in (squares.sum(0), squares.sum(1)):
        if sums.sum().square() < EVEN * len(sums) * sums.square().sum():
            return False
    return True


def _adam(group: dict[str, Any], state: dict[str, Any], g: Tensor, momentum: Tensor, eps: float) -> Tensor:
    """Take g into the mean squares; return Adam's step, of length 1 an element."""
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
    """Take a gradient into the sketches, and express the mean squares in their new bases.

    A new direction has shares O o O of the old ones, O = U_old'U_new; what is left of it has the mean square of the
    elements, weighted by its squares.
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
    """Return Adam's step in the directions of both sides and in the elements of what is left."""
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
    """Return [[U'G V, what is left of U'G beside V], [that of G V beside U, that of G beside both]] (k + m, k + n)."""
    k = u.shape[1]
    out = g.new_empty(k + g.shape[0], k + g.shape[1])
    left, right = u.T @ g, g @ v
    both = left @ v
    beside = right - u @ both
    out[:k, :k], out[k:, :k] = both, beside
    out[:k, k:] = left - both @ v.T
    UNTYPED.addmm(UNTYPED.addmm(g, u, left, alpha=-1), beside, v.T, alpha=-1, out=out[k:, k:])
    return out
