"""``AdaFD`` and ``AdaFFD``: adaptive subgradient optimizers with a sketched preconditioner for each tensor."""

import math
from typing import Any, ClassVar, Literal, TypedDict, cast

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from fastsketch._core.validation import MOST_SIZE, as_integer, as_real
from fastsketch._frame.keywords import named_keywords
from fastsketch.torch import _sketch
from fastsketch.torch._base import UNTYPED, GuardedOptimizer, check_shared, compute_dtype, tensors, usable_eps

# Largest number of elements in one tensor's sketch with sketched="auto": 256 MB of float32.
MAX_ELEMENTS = 2**26


class Estimate(TypedDict):
    """Dict of the bytes that the optimizer's state of one parameter takes, with the parameter's shape and group."""

    group: int
    shape: tuple[int, ...]
    kind: Literal["sketch", "diagonal"]
    bytes: int


class _SketchedOptimizer(GuardedOptimizer):
    """Base of ``AdaFD`` and ``AdaFFD``: parameters with a sketch, or with AdaGrad's diagonal."""

    _EVERY_ROUND: ClassVar[bool]
    _ON_CPU = _sketch.ON_CPU
    _SUMS = ("squares", "lam")
    _OPTIONAL = ("unit", "first_length")

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.005,
        *,
        sketch_size: int = 20,
        delta: float | None = None,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        maximize: bool = False,
        sketched: Literal["auto"] | bool = "auto",
        max_elements: int = MAX_ELEMENTS,
    ) -> None:
        super().__init__(
            params,
            {
                "lr": lr,
                "sketch_size": sketch_size,
                "delta": delta,
                "eps": eps,
                "weight_decay": weight_decay,
                "maximize": maximize,
                "sketched": sketched,
                "max_elements": max_elements,
            },
        )

    def _check(self, group: dict[str, Any]) -> None:
        check_shared(group)
        as_integer(group["sketch_size"], "sketch_size", 2, MOST_SIZE)
        as_integer(group["max_elements"], "max_elements", 0)
        if group["delta"] is not None:
            group["delta"] = as_real(group["delta"], "delta", 0.0, 1e300, low_open=True)

    def _is_sketched(self, group: dict[str, Any], p: Tensor) -> bool:
        """Return True if the parameter gets a sketch, False if it gets AdaGrad's diagonal."""
        if group["sketched"] != "auto":
            return group["sketched"]
        _, cap = _sketch.shapes(p.numel(), group["sketch_size"], every_round=self._EVERY_ROUND)
        return p.ndim >= 2 and cap * p.numel() <= group["max_elements"]

    def memory_estimate(self) -> list[Estimate]:
        """Return a list of dicts with the bytes that the state of each parameter takes, also before the first step.

        Returns
        -------
        list of dict
            In the order of the parameters: group, shape, kind ("sketch" or "diagonal"), bytes.
        """
        out: list[Estimate] = []
        for i, group in enumerate(self.param_groups):
            for p in tensors(group):
                state = self._begin(group, p, torch.device("meta"))
                size = sum(value.nbytes for value in state.values() if isinstance(value, Tensor))
                kind: Literal["sketch", "diagonal"] = "diagonal" if "squares" in state else "sketch"
                out.append({"group": i, "shape": tuple(p.shape), "kind": kind, "bytes": size})
        return out

    def _begin(self, group: dict[str, Any], p: Tensor, device: torch.device) -> dict[str, Any]:
        """Return the initial state of a parameter: an empty sketch, or AdaGrad's diagonal of zeros."""
        if not self._is_sketched(group, p):
            return {"step": 0, "squares": torch.zeros(p.numel(), dtype=compute_dtype(p.dtype), device=device)}
        every = self._EVERY_ROUND
        started = _sketch.start(p.numel(), group["sketch_size"], every_round=every, dtype=p.dtype, device=device)
        return {"step": 0, **started}

    def _check_state(self, group: dict[str, Any], p: Tensor, known: dict[str, Any]) -> None:
        super()._check_state(group, p, known)
        if "rank" in known and not (known["rank"] <= len(known["turn"]) and known["n_rows"] <= len(known["rows"])):
            raise ValueError(f"state 'rank', 'n_rows' of a parameter of shape {tuple(p.shape)} are more than it holds")
        length = known.get("first_length", 1.0)
        if not isinstance(length, float):
            where = f"state 'first_length' of a parameter of shape {tuple(p.shape)}"
            raise TypeError(f"{where} must be a float, got {length!r}")
        as_real(length, "first_length", 0.0, 1e300, low_open=True)

    def _prepare(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> Tensor:
        """Return a gradient as a flat vector in the dtype of the state, with the weight decay added.

        Shape (numel,).
        """
        g = self._gradient(group, p, grad).reshape(-1)
        if group["weight_decay"]:
            g = g + group["weight_decay"] * p.detach().reshape(-1).to(g.dtype)
        return g

    def _move(self, group: dict[str, Any], p: Tensor, g: Tensor) -> None:
        wide = torch.float64 if g.device.type == "cpu" else None
        square = float(UNTYPED.linalg.vector_norm(g, dtype=wide)) ** 2
        state: dict[str, Any] = self.state[p]
        if not state:
            state.update(self._begin(group, p, p.device))
        state["step"] += 1
        if "squares" in state:
            squares = cast(Tensor, state["squares"])
            squares.addcmul_(g, g)
            move = g / (squares.sqrt() + usable_eps(group["eps"], g.dtype))
        elif square <= torch.finfo(g.dtype).tiny:  # no step, as products of the elements underflow
            return
        else:
            sketch = cast(_sketch.TensorSketch, state)
            if group["delta"] is None:  # relative to the tensor's first nonzero gradient
                delta, factor = state.setdefault("first_length", math.sqrt(square)), math.sqrt(p.numel())
            else:
                delta, factor = group["delta"], 1.0
            size = (sketch["turn"].shape[1] // 2) if self._EVERY_ROUND else group["sketch_size"]
            move = factor * _sketch.direction(
                sketch,
                g,
                square=square,
                sketch_size=size,
                every_round=self._EVERY_ROUND,
                delta=delta,
            )
        p.sub_((float(group["lr"]) * move).reshape(p.shape).to(p.dtype))


@named_keywords
class AdaFFD(_SketchedOptimizer):
    """Adaptive mirror descent with a fast Frequent Directions sketch for each tensor (ADA-FFD).

    Parameters
    ----------
    params : iterable
        Tensors, named tensors, or groups with options of their own.
    lr : float, default 0.005
        Learning rate. With the default `delta` it is the largest root mean square of the elements of a step, as for
        AdaGrad and Adam; with a given `delta` it is the paper's eta.
    sketch_size : int, default 20
        Size tau of the sketch, at least 2.
    delta : float, optional
        Multiple of the identity in H, in the units of gradients; the paper uses 1. By default it is the length of the
        tensor's first nonzero gradient, and a step is lr times the square root of the number of elements times H^-1 g.
        If gradients are much shorter than `delta`, H is close to a multiple of the identity, and steps are those of
        gradient descent.
    eps : float, default 1e-8
        Like `delta` for tensors with a diagonal H; at least 1e-19 (float64: 2e-154).
    weight_decay : float, default 0.0
        This multiple of the parameter is added to the gradient.
    maximize : bool, default False
    sketched : {"auto", True, False}
        Whether the tensors of a group are sketched. "auto" sketches tensors of two or more dimensions whose sketch has
        at most ``max_elements`` elements. All others have AdaGrad's diagonal.
    max_elements : int, default 2**26

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range.

    Notes
    -----
    These are the algorithms of the paper, for repeating its experiments and for measurements on other problems.
    Networks are better trained by ``SketchedSOAP`` or by torch's own optimizers: with its defaults AdaFFD is about as
    good as AdaGrad, and its state has 2 tau times as many numbers as the weights, where Adam's has twice as many.

    A tensor of d elements has 2 tau d elements of state. A step costs two passes over them and O(tau^3), and about
    every tau-th step O(tau^2 d). ``memory_estimate()`` returns the bytes before the first step. The state of
    half-precision parameters is float32. All small matrices are float64 on the CPU, so a step waits for one small
    transfer for each tensor.

    Gradients that may be longer than 7e16 (float64: 7e134), by their largest element times the square root of the
    number of elements, are refused. Gradients of a sketched tensor that are shorter than 1e-19 (1e-154) make no step.

    References
    ----------
    Wan, Zhang, IEEE TPAMI 44 (2022), Algorithm 4, section 5.4.

    Examples
    --------
    >>> import torch
    >>> from fastsketch.torch import AdaFFD
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Linear(20, 3)
    >>> optimizer = AdaFFD(model.parameters(), lr=0.05)
    >>> x, y = torch.randn(64, 20), torch.randint(3, (64,))
    >>> for _ in range(20):
    ...     optimizer.zero_grad()
    ...     loss = torch.nn.functional.cross_entropy(model(x), y)
    ...     loss.backward()
    ...     _ = optimizer.step()
    >>> loss.item() < 1.0
    True
    """

    _EVERY_ROUND = False


@named_keywords
class AdaFD(_SketchedOptimizer):
    """Adaptive mirror descent with a Frequent Directions sketch for each tensor (ADA-FD).

    Parameters
    ----------
    params, lr, sketch_size, delta, eps, weight_decay, maximize, sketched, max_elements
        As for ``AdaFFD``, with the same errors.

    Notes
    -----
    The sketch shrinks in every step, to tau - 1 directions. The basis is rotated in the small space of the sketch, so
    that a step costs no more than one of ``AdaFFD``; in the paper it is an SVD.

    References
    ----------
    Wan, Zhang, IEEE TPAMI 44 (2022), Algorithm 2.

    Examples
    --------
    >>> import torch
    >>> from fastsketch.torch import AdaFD
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Linear(20, 3)
    >>> optimizer = AdaFD(model.parameters(), lr=0.05, sketch_size=5)
    >>> [(state["kind"], state["shape"]) for state in optimizer.memory_estimate()]
    [('sketch', (3, 20)), ('diagonal', (3,))]
    >>> x, y = torch.randn(64, 20), torch.randint(3, (64,))
    >>> for _ in range(20):
    ...     optimizer.zero_grad()
    ...     loss = torch.nn.functional.cross_entropy(model(x), y)
    ...     loss.backward()
    ...     _ = optimizer.step()
    >>> loss.item() < 1.0
    True
    """

    _EVERY_ROUND = True
