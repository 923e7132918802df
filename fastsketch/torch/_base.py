"""Base class of the torch optimizers: checks of options and gradients, atomic steps, loading of states."""

import math
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar, cast, overload

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from fastsketch._core.validation import as_real
from fastsketch._kernels.guard import Guard, changes

# torch, for functions without declared types.
UNTYPED: Any = torch
# Option that torch adds to the defaults of a copied optimizer.
ADDED = "differentiable"
# More steps than any training has: a state with a larger count was not made by an optimizer.
MOST_STEPS = 2**48
NOT_FINITE = "the gradient{} of a parameter of shape {} is not finite; nothing has been changed"
TOO_LARGE = (
    "the gradient of a parameter of shape {} has an element of {:.3g}: squares may leave the range of {}; nothing has "
    "been changed: clip gradients, or scale the loss"
)

_F = TypeVar("_F", bound=Callable[..., Any])


def uncompiled(method: _F) -> _F:
    """Decorate a method so that it runs uncompiled inside a function compiled by ``torch.compile``.

    A step draws random numbers, waits once for the device and changes from one step to the next. Compiled, it was one
    graph for each tensor and step, up to the limit of recompilations. torch does the same with the methods of its own
    optimizers; this way importing the module does not import the compiler.
    """
    return UNTYPED._disable_dynamo(method)


def tensors(group: dict[str, Any]) -> list[Tensor]:
    """Return the parameters of a parameter group."""
    return group["params"]


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of the state: float64 for float64 parameters, float32 for all others."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def usable_eps(eps: float, dtype: torch.dtype) -> float:
    """Return eps, but at least the square root of the smallest normal number, so that eps^2 does not underflow."""
    return max(eps, math.sqrt(torch.finfo(dtype).tiny))


def check_whole(p: Tensor) -> None:
    """Raise TypeError if a parameter is a shard of a distributed tensor, since sketches need whole matrices."""
    if hasattr(p, "device_mesh"):
        raise TypeError(f"parameters must be whole tensors, got a {type(p).__name__} of shape {tuple(p.shape)}")


def check_shared(group: dict[str, Any]) -> None:
    """Validate the options of a parameter group that all optimizers have, and make its numbers floats, in place.
    TypeError or ValueError if an option is out of range.

    The message names the option.
    """
    lr, sketched = group["lr"], group["sketched"]
    if isinstance(lr, Tensor) and (lr.numel() != 1 or lr.is_complex() or lr.is_meta):
        raise ValueError(f"lr must be a number or a tensor of one, got a tensor of shape {tuple(lr.shape)}, {lr.dtype}")
    rate = as_real(float(lr) if isinstance(lr, Tensor) else lr, "lr", 0.0, 1e300)
    group["lr"] = lr if isinstance(lr, Tensor) else rate
    group["eps"] = as_real(group["eps"], "eps", 0.0, 1e300, low_open=True)
    group["weight_decay"] = as_real(group["weight_decay"], "weight_decay", 0.0, 1e300)
    if not isinstance(group["maximize"], bool):
        raise TypeError(f"maximize must be True or False, got {group['maximize']!r}")
    if not (isinstance(sketched, bool) or (isinstance(sketched, str) and sketched == "auto")):
        raise ValueError(f"sketched must be True, False or 'auto', got {sketched!r}")


class GuardedOptimizer(Optimizer):
    """Base of the optimizers, with atomic steps: a gradient that is refused changes nothing.

    Only one thread can be in a step.
    """

    # Names of the tensors of a state that are always on the CPU.
    _ON_CPU: ClassVar[tuple[str, ...]] = ()
    # Names of the tensors that must not be negative.
    _SUMS: ClassVar[tuple[str, ...]] = ("squares",)
    # Names of numbers that a state may have in addition to what `_begin` returns; earlier versions wrote a "unit".
    _OPTIONAL: ClassVar[tuple[str, ...]] = ("unit",)

    def __init__(self, params: ParamsT, defaults: dict[str, Any]) -> None:
        self._guard = Guard()
        super().__init__(params, defaults)

    def _check(self, group: dict[str, Any]) -> None:
        """Raise TypeError or ValueError if an option of a parameter group is out of range.

        The message names the option.
        """
        check_shared(group)

    def _prepare(self, group: dict[str, Any], p: Tensor, grad: Tensor) -> Tensor:
        """Return a gradient in the form in which the step uses it: checked, and in the dtype of the optimizer's state.

        The implementation may raise an exception, but changes nothing.
        """
        raise NotImplementedError

    def _begin(self, group: dict[str, Any], p: Tensor, device: torch.device) -> dict[str, Any]:
        """Return the initial state of a parameter before its first gradient: a dict of tensors and counts."""
        raise NotImplementedError

    def _move(self, group: dict[str, Any], p: Tensor, g: Tensor) -> None:
        """Update the optimizer's state of one parameter by its gradient g, and then the parameter in place."""
        raise NotImplementedError

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group of parameters, which may have other options than the defaults.

        Parameters
        ----------
        param_group : dict
            "params", and options by name.

        Raises
        ------
        TypeError, ValueError
            If an option is out of range, or the parameters are missing or shards.
        """
        options = {**self.defaults, **param_group}
        self._check(options)
        if "params" not in param_group:
            raise ValueError(f"param_group must hold 'params', got {', '.join(map(repr, param_group))}")
        given: Any = param_group["params"]
        if isinstance(given, Tensor):
            given = [given]
        elif not isinstance(given, set):  # torch refuses sets, as they have no order
            given = list(given)
        for one in cast("list[Any]", given):
            check_whole(cast("tuple[str, Tensor]", one)[1] if isinstance(one, tuple) else one)
        super().add_param_group({**options, "params": given})

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
        """Update all parameters by one optimization step.

        Parameters
        ----------
        closure : callable, optional
            Computes the gradients and returns the loss.

        Returns
        -------
        float or None
            The loss that `closure` has returned.

        Raises
        ------
        FloatingPointError
            If a gradient is not finite, or so large that sums of its squares may overflow. No parameter and no state
            has then been changed.
        RuntimeError
            For sparse or complex gradients, with nothing changed, or if another thread is in a step of this optimizer.
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
        """Return a gradient in the dtype of the optimizer's state, negated with maximize=True.

        Raises RuntimeError for sparse or complex gradients.
        """
        check_whole(p)
        if grad.layout != torch.strided or p.is_complex():
            raise RuntimeError(f"{type(self).__name__} takes dense, real gradients only")
        g = grad.detach().to(compute_dtype(p.dtype))
        return -g if group["maximize"] else g

    @changes
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of an optimizer, with the dtypes that were saved.

        Training resumes bitwise identically. torch itself would convert the state to the dtype of the parameters.

        Parameters
        ----------
        state_dict : dict
            As ``state_dict()`` returned it.

        Raises
        ------
        TypeError
            If it is not such a dict.
        ValueError
            If it belongs to other parameters or another optimizer, or has tensors that are not finite or of other
            shapes. Nothing is then loaded.
        """
        self._check_state_dict(state_dict)
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            self._check(group)  # which makes numbers floats
        # torch has cast the state to the dtype of the parameter: restore what was saved
        ids = [i for group in state_dict["param_groups"] for i in group["params"]]
        params = [p for group in self.param_groups for p in tensors(group)]
        for i, p in zip(ids, params, strict=True):
            for name, value in state_dict["state"].get(i, {}).items():
                if isinstance(value, Tensor):
                    home = "cpu" if name in self._ON_CPU else p.device
                    self.state[p][name] = value.detach().to(home, copy=True)

    def _check_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Raise TypeError or ValueError if the options or states do not fit this optimizer."""
        try:
            groups, states = state_dict["param_groups"], state_dict["state"]
            ids = [i for group in groups for i in group["params"]]
            begun = {i for i, state in states.items() if state.keys()}
        except (AttributeError, IndexError, KeyError, TypeError):
            raise TypeError(
                "state_dict must be what state_dict() returned, with a list 'param_groups' and a dict 'state'"
            ) from None
        if not all(type(i) in (int, str) for i in ids):
            raise TypeError("'params' of state_dict must be numbers of parameters, or their names")
        if len(set(ids)) < len(ids) or not states.keys() <= set(ids):
            raise ValueError("state_dict must have each parameter in one group, and states of these parameters only")
        for name in self.defaults:
            if name != ADDED and any(name not in group for group in groups):
                raise ValueError(f"state_dict has no option {name!r}: it is of another optimizer")
        for saved, group in zip(groups, self.param_groups, strict=False):
            self._check({**self.defaults, **saved})
            for i, p in zip(saved["params"], tensors(group), strict=False):  # torch refuses a different number
                if i in begun:
                    self._check_state({**group, **saved}, p, states[i])

    def _check_state(self, group: dict[str, Any], p: Tensor, known: dict[str, Any]) -> None:
        """Raise ValueError if `known` cannot be the state of parameter `p` with the options of its group."""
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
    """Raise FloatingPointError if a gradient in `jobs` is not finite, or is so large that its squares may overflow.

    The bound on a gradient's length, its largest element times the square root of their number, must not exceed
    max^(7/16), where max is the largest number of the dtype (7e16 for float32). Hundreds of thousands of squares of
    such gradients can be added. All largest elements are copied to one device first, so that the program waits for it
    only once.
    """
    held = [(p, g) for _, p, g in jobs if g.numel() and not g.is_meta]
    if not held:
        return
    zero = torch.zeros((), dtype=torch.float64, device=held[0][1].device)
    largest: Any = torch.stack([g.abs().max().to(zero) for _, g in held])
    for (p, g), size in zip(held, largest.tolist(), strict=True):
        if not math.isfinite(size):
            decayed = p.grad is not None and p.grad.isfinite().all()
            raise FloatingPointError(NOT_FINITE.format(" with weight_decay added" if decayed else "", tuple(p.shape)))
        if size * math.sqrt(g.numel()) > torch.finfo(g.dtype).max ** (7 / 16):
            dtype = str(g.dtype).removeprefix("torch.")
            raise FloatingPointError(TOO_LARGE.format(tuple(p.shape), size, dtype))
