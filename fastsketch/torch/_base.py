"""What the optimizers share of torch's protocol: checked options, refused gradients, states that keep their bits."""

import math
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, cast, overload

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from fastsketch._core.validation import as_real
from fastsketch._kernels.guard import Guard, changes

# torch, for the functions that it declares without types.
UNTYPED: Any = torch
# An option that torch adds to the defaults of an optimizer that was copied.
ADDED = "differentiable"
# More than any training has: a state with others is not one that a step has left.
MOST_STEPS = 2**48
NOT_FINITE = "the gradient{} of a parameter of shape {} is not finite; nothing has been changed"
TOO_LARGE = (
    "the gradient of a parameter of shape {} has an element of {:.3g}: squares may leave the range of {}; nothing has "
    "been changed: clip gradients, or scale the loss"
)

_F = TypeVar("_F", bound=Callable[..., Any])


def uncompiled(method: _F) -> _F:
    """Decorate what is run as it is within a function that is compiled.

    A step draws numbers by itself, waits once for the device and changes its form from one step to the next: compiled
    it was one graph a tensor and step, up to the limit of recompilations. As torch does with its own optimizers'
    methods, so that importing this does not import the compiler.
    """
    return UNTYPED._disable_dynamo(method)


def tensors(group: dict[str, Any]) -> list[Tensor]:
    """Return the parameters of a group."""
    return group["params"]


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return float64 for float64 tensors, float32 for all others."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def usable_eps(eps: float, dtype: torch.dtype) -> float:
    """Return eps, but at least the root of the smallest normal number: the square of a smaller one underflows."""
    return max(eps, math.sqrt(torch.finfo(dtype).tiny))


def check_whole(p: Tensor) -> None:
    """Raise TypeError for a shard of a tensor: sketches are of whole matrices."""
    if hasattr(p, "device_mesh"):
        raise TypeError(f"parameters must be whole tensors, got a {type(p).__name__} of shape {tuple(p.shape)}")


def check_shared(group: dict[str, Any]) -> None:
    """Raise TypeError or ValueError naming an option that every optimizer has, if it is out of range."""
    lr, sketched = group["lr"], group["sketched"]
    if isinstance(lr, Tensor) and (lr.numel() != 1 or lr.is_complex() or lr.is_meta):
        raise ValueError(f"lr must be a number or a tensor of one, got a tensor of shape {tuple(lr.shape)}, {lr.dtype}")
    as_real(float(lr) if isinstance(lr, Tensor) else lr, "lr", 0.0, 1e300)
    as_real(group["eps"], "eps", 0.0, 1e300, low_open=True)
    as_real(group["weight_decay"], "weight_decay", 0.0, 1e300)
    if not isinstance(group["maximize"], bool):
        raise TypeError(f"maximize must be True or False, got {group['maximize']!r}")
    if not (isinstance(sketched, bool) or (isinstance(sketched, str) and sketched == "auto")):
        raise ValueError(f"sketched must be True, False or 'auto', got {sketched!r}")


class GuardedOptimizer(Optimizer):
    """Base of the optimizers: a step is all or nothing, one at a time, and a state keeps its dtypes."""

    # Names of the tensors of a state that are on the CPU, wherever the parameter is.
    _ON_CPU: ClassVar[tuple[str, ...]] = ()
    # Names of those that are sums of squares.
    _SUMS: ClassVar[tuple[str, ...]] = ("squares",)
    # Names of the numbers that a state may have in addition to what `_begin` returns; "unit" is of earlier versions.
    _OPTIONAL: ClassVar[tuple[str, ...]] = ("unit",)

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self._guard = Guard()
        super().__init__(params, defaults)

    def _check(self, group: dict[str, Any]) -> None:
        """Raise TypeError or ValueError naming an option of a group that is out of range."""
        check_shared(group)

    def _prepare(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> Tensor:
        """Return the gradient in the dtype of the state, or raise; nothing is changed."""
        raise NotImplementedError

    def _begin(self, group: dict[str, Any], p: Tensor, device: torch.device) -> dict[str, Any]:
        """Return the state of a parameter before its first gradient."""
        raise NotImplementedError

    def _move(self, group: dict[str, Any], p: Tensor, g: Tensor) -> None:
        """Take a gradient into the state of the parameter, and make the step."""
        raise NotImplementedError

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with options of their own; ValueError or TypeError name what is wrong with one.

        Parameters
        ----------
        param_group : dict
            "params", and options by their names.
        """
        self._check({**self.defaults, **param_group})
        if "params" not in param_group:
            raise ValueError(f"param_group must hold 'params', got {', '.join(map(repr, param_group))}")
        given: Any = param_group["params"]
        if isinstance(given, Tensor):
            given = [given]
        elif not isinstance(given, set):  # of which torch says that it has no order
            given = list(given)
        for one in cast("list[Any]", given):
            check_whole(cast("tuple[str, Tensor]", one)[1] if isinstance(one, tuple) else one)
        super().add_param_group({**param_group, "params": given})

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._guard = Guard()

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @uncompiled
    @changes
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Make one step; return what `closure`, which computes the loss and its gradients, returns.

        Raises
        ------
        FloatingPointError
            If a gradient holds a NaN or an infinity, or elements so large that sums of their squares may overflow: no
            parameter and no sketch has then been changed.
        RuntimeError
            For sparse or complex gradients, likewise; if another thread is in a step of this optimiser.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        jobs: list[tuple[dict[str, Any], Tensor, Tensor]] = []
        for group in self.param_groups:
            jobs += [(group, p, self._prepare(group, p, p.grad)) for p in tensors(group) if p.grad is not None]
        _check_sizes(jobs)
        for group, p, g in jobs:
            self._move(group, p, g)
        return loss

    def _gradient(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> Tensor:
        """Return the gradient in the shape of p and the dtype of the state, or raise RuntimeError."""
        check_whole(p)
        if grad.layout != torch.strided or p.is_complex():
            raise RuntimeError(f"{type(self).__name__} takes dense, real gradients only")
        g = grad.detach().to(compute_dtype(p.dtype))
        return -g if group["maximize"] else g

    @changes
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load as torch does, but keep every tensor in the dtype it was saved in: training goes on with the same bits.

        Raises TypeError for what no ``state_dict()`` has returned, ValueError for that of other parameters
        or of another optimizer, and for tensors that are not finite or of other shapes: nothing is then loaded.
        """
        _check_nesting(state_dict)
        for name in self.defaults:
            if name != ADDED and any(name not in group for group in state_dict["param_groups"]):
                raise ValueError(f"state_dict has no option {name!r}: it is of another optimizer")
        for saved, group in zip(state_dict["param_groups"], self.param_groups, strict=False):
            self._check({**self.defaults, **saved})
            for i, p in zip(saved["params"], tensors(group), strict=False):  # torch refuses others in number
                if state_dict["state"].get(i):
                    self._check_state({**group, **saved}, p, state_dict["state"][i])
        super().load_state_dict(state_dict)
        # torch casts the state to the dtype of the parameter: put what was saved in its place
        ids = [i for group in state_dict["param_groups"] for i in group["params"]]
        params = [p for group in self.param_groups for p in tensors(group)]
        for i, p in zip(ids, params, strict=True):
            for name, value in state_dict["state"].get(i, {}).items():
                if isinstance(value, Tensor):
                    home = "cpu" if name in self._ON_CPU else p.device
                    self.state[p][name] = value.detach().to(home, copy=True)

    def _check_state(self, group: dict[str, Any], p: Tensor, known: dict[str, Any]) -> None:
        """Raise ValueError if `known` is not the state of a parameter like p with the options of the group."""
        begun = self._begin(group, p, torch.device("meta"))
        if unknown := known.keys() - begun.keys() - set(self._OPTIONAL):
            names = ", ".join(sorted(map(repr, unknown)))
            raise ValueError(f"a state of a parameter of shape {tuple(p.shape)} has no {names}: remove what is unknown")
        unit = known.get("unit", 1.0)
        if not isinstance(unit, float) or unit not in (0.0, 1.0):
            raise ValueError(f"state 'unit' of a parameter of shape {tuple(p.shape)} must be 1, got {unit!r}")
        for name, expected in begun.items():
            value = known.get(name)
            where = f"state {name!r} of a parameter of shape {tuple(p.shape)}"
            if not isinstance(expected, Tensor):
                if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MOST_STEPS:
                    raise ValueError(f"{where} must be a count, got {value!r}")
            elif not isinstance(value, Tensor) or (value.shape, value.dtype) != (expected.shape, expected.dtype):
                got = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
                raise ValueError(f"{where} must be {expected.dtype} {tuple(expected.shape)}, got {got}")
            elif value.layout != torch.strided or (value.is_meta and not p.is_meta):
                raise ValueError(f"{where} must be a dense tensor with data, got {value.layout} on {value.device}")
            elif not (value.is_meta or (value.isfinite().all() and (name not in self._SUMS or (value >= 0).all()))):
                raise ValueError(f"{where} must be finite{', and not negative' if name in self._SUMS else ''}")


def _check_sizes(jobs: list[tuple[dict[str, Any], Tensor, Tensor]]) -> None:
    """Raise FloatingPointError for a gradient that is not finite, or of which a state cannot add the squares.

    The bound on a gradient's length, largest element times root of their number, must be at most max^(7/16), where max
    is the largest number of the dtype (7e16 for float32): hundreds of thousands of squares of shorter ones can be
    added. All largest elements are copied to one device first, so that the program waits for it once.
    """
    held = [(p, g) for _, p, g in jobs if g.numel() and not g.is_meta]
    if not held:
        return
    zero = torch.zeros((), dtype=torch.float64, device=held[0][1].device)
    sizes = torch.stack([g.abs().max().to(zero) for _, g in held]).tolist()
    for (p, g), size in zip(held, sizes, strict=True):
        if not math.isfinite(size):
            decayed = p.grad is not None and p.grad.isfinite().all()
            raise FloatingPointError(NOT_FINITE.format(" with weight_decay added" if decayed else "", tuple(p.shape)))
        if size * math.sqrt(g.numel()) > torch.finfo(g.dtype).max ** (7 / 16):
            dtype = str(g.dtype).removeprefix("torch.")
            raise FloatingPointError(TOO_LARGE.format(tuple(p.shape), size, dtype))


def _check_nesting(state_dict: Any) -> None:
    """Raise TypeError or ValueError if groups and states are not nested as ``state_dict()`` nests them."""
    what = "state_dict must be what state_dict() returned, with a list 'param_groups' and a dict 'state'"
    if not isinstance(state_dict, dict):
        raise TypeError(f"{what}, got {type(state_dict).__name__}")
    held = cast("dict[str, Any]", state_dict)
    groups, states = held.get("param_groups"), held.get("state")
    found = f"{type(groups).__name__} and {type(states).__name__}"
    if not (isinstance(groups, list | tuple) and groups and isinstance(states, dict)):
        raise TypeError(f"{what}, got {found}")
    ids: list[Any] = []
    every_group: list[Any] = [*cast("list[Any]", groups)]
    for group in every_group:
        if not isinstance(group, dict) or not isinstance(cast("dict[str, Any]", group).get("params"), list | tuple):
            raise TypeError("each of the 'param_groups' of state_dict must be a dict with a list 'params'")
        ids += cast("dict[str, Any]", group)["params"]
    if not all(type(i) in (int, str) for i in ids):
        raise TypeError("'params' of state_dict must be numbers of parameters, or their names")
    if len(set(ids)) < len(ids) or not cast("dict[Any, Any]", states).keys() <= set(ids):
        raise ValueError("state_dict must have each parameter in one group, and states of these parameters only")
    for i, known in cast("dict[Any, Any]", states).items():
        if not isinstance(known, dict):
            raise TypeError(f"the state of parameter {i!r} must be a dict, got {type(known).__name__}")
