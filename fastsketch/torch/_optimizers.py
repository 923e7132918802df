"""ADA-FD and ADA-FFD as torch optimisers: a sketched H for each chosen tensor, AdaGrad's diagonal for the others."""

import math

import torch
from torch.optim import Optimizer

from fastsketch._validation import as_integer, as_real
from fastsketch.torch import _sketch

# Elements of one tensor's sketch above which "auto" takes the diagonal: 256 MB of float32.
MAX_ELEMENTS = 2**26


class _Sketched(Optimizer):
    """What both optimisers share; a subclass says whether the sketch shrinks in every round."""

    _EVERY_ROUND = None

    def __init__(
        self,
        params,
        lr=0.01,
        *,
        sketch_size=20,
        delta=1.0,
        eps=1e-8,
        weight_decay=0.0,
        maximize=False,
        sketch="auto",
        max_elements=MAX_ELEMENTS,
    ):
        super().__init__(
            params,
            {
                "lr": lr,
                "sketch_size": sketch_size,
                "delta": delta,
                "eps": eps,
                "weight_decay": weight_decay,
                "maximize": maximize,
                "sketch": sketch,
                "max_elements": max_elements,
            },
        )

    def add_param_group(self, param_group):
        """Add parameters with options of their own; ValueError or TypeError name what is wrong with one."""
        group = {**self.defaults, **param_group}
        lr = group["lr"]
        as_real(float(lr) if isinstance(lr, torch.Tensor) else lr, "lr", 0.0, 1e300)
        as_integer(group["sketch_size"], "sketch_size", 2)
        as_integer(group["max_elements"], "max_elements", 0)
        as_real(group["delta"], "delta", 0.0, 1e300, low_open=True)
        as_real(group["eps"], "eps", 0.0, 1e300, low_open=True)
        as_real(group["weight_decay"], "weight_decay", 0.0, 1e300)
        if group["sketch"] not in (True, False, "auto"):
            raise ValueError(f"sketch must be True, False or 'auto', got {group['sketch']!r}")
        super().add_param_group(param_group)

    def _is_sketched(self, group, p):
        if group["sketch"] != "auto":
            return group["sketch"]
        _, cap = _sketch.shapes(p.numel(), group["sketch_size"], self._EVERY_ROUND)
        return p.ndim >= 2 and cap * p.numel() <= group["max_elements"]

    def memory_estimate(self):
        """Bytes of state each parameter has or will have.

        Returns
        -------
        list of dict
            In the order of the parameters: group, shape, kind ("sketch" or "diagonal"), bytes.
        """
        out = []
        for i, group in enumerate(self.param_groups):
            for p in group["params"]:
                sketched = self._is_sketched(group, p)
                width = 8 if p.dtype == torch.float64 else 4
                size = (
                    width * p.numel()
                    if not sketched
                    else _sketch.n_bytes(p.numel(), group["sketch_size"], self._EVERY_ROUND, p.dtype)
                )
                out.append(
                    {"group": i, "shape": tuple(p.shape), "kind": "sketch" if sketched else "diagonal", "bytes": size}
                )
        return out

    @torch.no_grad()
    def step(self, closure=None):
        """One step; returns what `closure`, which computes the loss and its gradients, returns.

        Raises
        ------
        FloatingPointError
            If a gradient holds a NaN or an infinity: no parameter and no sketch has then been changed.
        RuntimeError
            For sparse or complex gradients, likewise.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        jobs = [
            (group, p, *self._gradient(group, p))
            for group in self.param_groups
            for p in group["params"]
            if p.grad is not None
        ]
        for group, p, g, square in jobs:
            self._move(group, p, g, square)
        return loss

    def _gradient(self, group, p):
        """The gradient (numel,) in the dtype of the state, and its squared length."""
        if p.grad.is_sparse or p.is_complex():
            raise RuntimeError(f"{type(self).__name__} takes dense, real gradients only")
        g = p.grad.detach().reshape(-1).to(_sketch.compute_dtype(p.dtype))
        if group["maximize"]:
            g = -g
        if group["weight_decay"]:
            g = g + group["weight_decay"] * p.detach().reshape(-1).to(g.dtype)
        square = float(torch.linalg.vector_norm(g, dtype=torch.float64 if g.device.type == "cpu" else None)) ** 2
        if not math.isfinite(square):
            raise FloatingPointError(
                f"the gradient of a parameter of shape {tuple(p.shape)} is not finite; nothing has been changed"
            )
        return g, square

    def _move(self, group, p, g, square):
        state = self.state[p]
        if not state:
            if self._is_sketched(group, p):
                state.update(_sketch.start(p.numel(), group["sketch_size"], self._EVERY_ROUND, p.dtype, p.device))
            else:
                state["squares"] = torch.zeros_like(g)
            state["step"] = 0
        state["step"] += 1
        if "squares" in state:
            state["squares"].addcmul_(g, g)
            move = g / (state["squares"].sqrt() + group["eps"])
        elif square == 0:
            return
        else:
            size = (state["turn"].shape[1] // 2) if self._EVERY_ROUND else group["sketch_size"]
            move = _sketch.direction(state, g, square, size, self._EVERY_ROUND, group["delta"])
        p.sub_((float(group["lr"]) * move).reshape(p.shape).to(p.dtype))

    def load_state_dict(self, state_dict):
        """As torch's, but every tensor keeps the dtype it was saved in, so that training goes on with the same bits."""
        super().load_state_dict(state_dict)
        # torch casts the state to the dtype of the parameter: put what was saved in its place
        ids = [i for group in state_dict["param_groups"] for i in group["params"]]
        params = [p for group in self.param_groups for p in group["params"]]
        for i, p in zip(ids, params, strict=True):
            for name, value in state_dict["state"].get(i, {}).items():
                if isinstance(value, torch.Tensor):
                    home = "cpu" if name in ("turn", "lam", "gram") else p.device
                    self.state[p][name] = value.detach().to(home, copy=True)


class AdaFFD(_Sketched):
    """Adaptive mirror descent by fast Frequent Directions (ADA-FFD) for the tensors of a network.

    Parameters
    ----------
    params : iterable
        Tensors, named tensors, or groups with options of their own.
    lr : float, default 0.01
        Step size eta.
    sketch_size : int, default 20
        tau >= 2.
    delta : float, default 1.0
        Multiple of the identity in H.
    eps : float, default 1e-8
        The same for tensors with a diagonal H.
    weight_decay : float, default 0.0
        Added to the gradient, times the parameter.
    maximize : bool, default False
    sketch : {"auto", True, False}
        Whether the tensors of a group are sketched; "auto": those of two or more dimensions whose sketch has at most
        ``max_elements`` elements. All others have AdaGrad's diagonal.
    max_elements : int, default 2**26

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range.

    Notes
    -----
    A tensor of d elements holds 2 tau d elements of state; a step costs two passes over them and O(tau^3), every
    tau-th or so O(tau^2 d). ``memory_estimate()`` tells the bytes before the first step. The state of half-precision
    parameters is float32, what is small is float64 on the CPU: a step waits for one small transfer a tensor.

    References
    ----------
    Wan, Zhang, IEEE TPAMI 44 (2022), Algorithm 4, section 5.4.

    Examples
    --------
    >>> import torch
    >>> from fastsketch.torch import AdaFFD
    >>> _ = torch.manual_seed(0)
    >>> model = torch.nn.Linear(20, 3)
    >>> optimizer = AdaFFD(model.parameters(), lr=1.0)
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


class AdaFD(_Sketched):
    """Adaptive mirror descent by Frequent Directions (ADA-FD) for the tensors of a network.

    Parameters
    ----------
    params, lr, sketch_size, delta, eps, weight_decay, maximize, sketch, max_elements
        Those of AdaFFD, with its errors.

    Notes
    -----
    Shrinks in every step, to tau - 1 directions. The basis is turned in the small space, so that a step costs no more
    than one of AdaFFD (in the paper it is an SVD).

    References
    ----------
    Wan, Zhang, IEEE TPAMI 44 (2022), Algorithm 2.
    """

    _EVERY_ROUND = True
