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
NOT_FINITE = "the gradient of a parameter of shape {} is not finite; nothing has been changed"

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


def check_whole(p: Tensor) -> None:
    """Raise TypeError for a shard of a tensor: sketches are of whole matrices."""
    if hasattr(p, "device_mesh"):
        raise TypeError(f"parameters must be whole tensors, got a {type(p).__name__} of shape {tuple(p.shape)}")


def check_shared(group: dict[str, Any]) -> None:
    """Raise TypeError or ValueError naming an option that every optimizer has, if it is out of range."""
    lr, sketched = group["lr"], group["sketched"]
    as_real(float(lr) if isinstance(lr, Tensor) else lr, "lr", 0.0, 1e300)
    as_real(group["eps"], "eps", 0.0, 1e300, low_open=True)
    as_real(group["weight_decay"], "weight_decay", 0.0, 1e300)
    if not isinstance(group["maximize"], bool):
        raise TypeError(f"maximize must be True or False, got {group['maximize']!r}")
    if not (isinstance(sketched, bool) or sketched == "auto"):
        raise ValueError(f"sketched must be True, False or 'auto', got {sketched!r}")


class GuardedOptimizer(Optimizer):
    """Base of the optimizers: a step is all or nothing, one at a time, and a state keeps its dtypes."""

    # Names of the tensors of a state that are on the CPU, wherever the parameter is.
    _ON_CPU: ClassVar[tuple[str, ...]] = ()
    # Names of those that are sums of squares.
    _SUMS: ClassVar[tuple[str, ...]] = ("squares",)

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self._guard = Guard()
        super().__init__(params, defaults)

    def _check(self, group: dict[str, Any]) -> None:
        """Raise TypeError or ValueError naming an option of a group that is out of range."""
        check_shared(group)

    def _prepare(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> Any:
        """Return what `_move` takes of a gradient, or raise; nothing is changed."""
        raise NotImplementedError

    def _begin(self, group: dict[str, Any], p: Tensor, device: torch.device) -> dict[str, Any]:
        """Return the state of a parameter before its first gradient."""
        raise NotImplementedError

    def _check_gradients(self, jobs: list[tuple[dict[str, Any], Tensor, Any]]) -> None:
        """Raise FloatingPointError if a gradient is not finite, where `_prepare` has not done so."""

    def _move(self, group: dict[str, Any], p: Tensor, prepared: Any) -> None:
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
            If a gradient holds a NaN or an infinity: no parameter and no sketch has then been changed.
        RuntimeError
            For sparse or complex gradients, likewise; if another thread is in a step of this optimiser.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        jobs: list[tuple[dict[str, Any], Tensor, Any]] = []
        for group in self.param_groups:
            jobs += [(group, p, self._prepare(group, p, p.grad)) for p in tensors(group) if p.grad is not None]
        self._check_gradients(jobs)
        for job in jobs:
            self._move(*job)
        return loss

    def _gradient(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> Tensor:
        """Return the gradient in the shape of p and the dtype of the state, or raise RuntimeError."""
        check_whole(p)
        if grad.layout != torch.strided or p.is_complex():
            raise RuntimeError(f"{type(self).__name__} takes dense, real gradients only")
        g = grad.detach().to(compute_dtype(p.dtype))
        return -g if group["maximize"] else g

    def _squared_length(self, p: Tensor, g: Tensor) -> float:
        """Return |g|^2, or raise FloatingPointError if it is not finite."""
        wide = torch.float64 if g.device.type == "cpu" else None
        square = float(UNTYPED.linalg.vector_norm(g, dtype=wide)) ** 2
        if not math.isfinite(square):
            raise FloatingPointError(NOT_FINITE.format(tuple(p.shape)))
        return square

    @changes
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load as torch does, but keep every tensor in the dtype it was saved in: training goes on with the same bits.

        Raises TypeError for what no ``state_dict()`` has returned, ValueError for that of other parameters
        or of another optimizer, and for tensors that are not finite or of other shapes: nothing is then loaded.
        """
        if not (hasattr(state_dict, "get") and state_dict.get("param_groups") and "state" in state_dict):
            raise TypeError(f"state_dict must be what state_dict() returned, got {type(state_dict).__name__}")
        for name in self.defaults:
            if name != ADDED and any(name not in group for group in state_dict["param_groups"]):
                raise ValueError(f"state_dict has no option {name!r}: it is of another optimizer")
        for saved, group in zip(state_dict["param_groups"], self.param_groups, strict=False):
            self._check({**self.defaults, **saved})
            for i, p in zip(saved["params"], tensors(group), strict=False):  # torch refuses others in number
                if i in state_dict["state"]:
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
        for name, expected in self._begin(group, p, torch.device("meta")).items():
            value = known.get(name)
            where = f"state {name!r} of a parameter of shape {tuple(p.shape)}"
            if not isinstance(expected, Tensor):
                if not isinstance(value, int) or not 0 <= value < MOST_STEPS:
                    raise ValueError(f"{where} must be a count, got {value!r}")
            elif not isinstance(value, Tensor) or (value.shape, value.dtype) != (expected.shape, expected.dtype):
                got = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
                raise ValueError(f"{where} must be {expected.dtype} {tuple(expected.shape)}, got {got}")
            elif not (value.is_meta or (value.isfinite().all() and (name not in self._SUMS or (value >= 0).all()))):
                raise ValueError(f"{where} must be finite{', and not negative' if name in self._SUMS else ''}")
