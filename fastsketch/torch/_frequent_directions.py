"""Frequent Directions of torch tensors, on their device."""

# pyright: reportPrivateUsage=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false
# (the state and the read-outs are those of fs.FrequentDirections; torch declares only part of its types)

import json
from typing import Any, NamedTuple, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fastsketch._core.validation import as_choice, as_flag, as_integer
from fastsketch._frame.loading import from_bytes
from fastsketch._kernels.guard import changes, reads
from fastsketch.sketching import FrequentDirections as HostSketch
from fastsketch.sketching._engines import DenseEngine, EngineSetting
from fastsketch.sketching._methods import METHODS, MethodName
from fastsketch.torch._base import UNTYPED, check_whole, uncompiled
from fastsketch.torch._device_engine import DeviceEngine, full_precision

# The log of removed mass that "tfd" needs is kept on the CPU only.
DEVICE_METHODS = tuple(name for name, method in METHODS.items() if not method.tracks)
# Rows collected between shrinks, in units of sketch_size: each shrink waits for the device once.
BUFFER_RATIO = 5
SETTINGS = ("sketch_size", "method", "center", "buffer_size", "dtype", "n_features")
# Bytes in which each process of a group announces its parameters, as JSON padded with spaces.
HEADER_BYTES = 256


def as_device(value: Any) -> torch.device:
    """Validate a device, and return it; TypeError or ValueError if torch cannot use it, or it has no numbers."""
    if not isinstance(value, str | int | torch.device) or isinstance(value, bool):
        raise TypeError(f"device must be a torch.device or its name, got {type(value).__name__}")
    try:
        device = torch.empty(0, device=value).device
    except (RuntimeError, AssertionError) as error:  # an AssertionError: torch was compiled without CUDA
        raise ValueError(f"device must be one that torch can use here, got {value!r}: {error}") from None
    if device.type == "meta":
        raise ValueError("device must hold numbers, got 'meta'")
    return device


class TensorSpectrum(NamedTuple):
    """Estimates of the leading eigenvalues of A'A for the rows A of a stream, with guaranteed intervals.

    Attributes
    ----------
    values : Tensor (r,)
        Estimates, descending, in squared units of the rows; float64 on the CPU, as are `low` and `high`.
    vectors : Tensor (r, d)
        Orthonormal directions, in the same order, on the device and in the dtype of the sketch.
    low, high : Tensor (r,)
        The i-th largest eigenvalue of A'A lies in [low[i], high[i]].
    """

    values: Tensor
    vectors: Tensor
    low: Tensor
    high: Tensor


class FrequentDirections:
    """Sketch a stream of tensors by Frequent Directions on their device, with a certified bound on the error.

    The rows A (n x d) are summarised by a matrix B of at most ``sketch_size`` = l rows, such that B'B is close to A'A.
    This is ``fs.FrequentDirections(solver="gram")``, with the rows on the device of the first batch. A shrink computes
    a Gram matrix there, its eigenvectors on the CPU, and the new rows on the device.

    It is a plain object with ``state_dict``, ``load_state_dict`` and ``to``, as an optimizer has them, and not a
    module: casting a model, or wrapping it in DistributedDataParallel, does not change a sketch that is its attribute.

    Parameters
    ----------
    sketch_size : int, default 64
        l >= 2, the largest number of rows of the sketch.
    method : {"rfd", "fd", "pfd", "cfd", "isvd"}, default "rfd"
        As for ``fs.FrequentDirections``, whose "tfd" is not available here.
    center : bool, default True
        Subtract the mean of all rows seen, exactly and online.
    buffer_size : int, optional
        b >= 1, the number of rows collected between shrinks in addition to l; by default 5 l.
    dtype : torch.float32 or torch.float64, default torch.float32
        Of the rows on the device. Rows of other dtypes are converted.

    Attributes
    ----------
    n_rows, n_features : int
        Number of rows seen, and of columns d; n_features is None before the first row.
    device : torch.device
        Where the rows are; None before the first row.

    Raises
    ------
    TypeError, ValueError
        If a parameter is out of range; the message names it.

    Notes
    -----
    Guarantees, at any moment and after any merges, with Delta = ``shrinkage``: those of ``fs.FrequentDirections``. The
    allowance for rounding is also the same: 16 units of rounding of the largest eigenvalue for each shrink, added as
    squares in float32. Products are computed without TF32, bfloat16 and autocast, and the lengths of rows are summed in
    float64. It was measured on streams with singular values of ratios up to 1e5 (tests/torch/test_certificate.py).

    Memory on the device: (2 l + b) d numbers, and 2 d in float64; (l + b) d more while a batch is added that may cause
    a shrink, which is rolled back if the batch is refused or interrupted. Each shrink transfers one matrix of l + b
    rows and columns to the CPU, and one of l rows back; each batch transfers its smallest and largest entry. Read-outs,
    merges and a change of the power of two by which rows are divided copy the rows to the CPU.

    Rows on a device without float64 (MPS) are sketched on the CPU.

    References
    ----------
    As for ``fs.FrequentDirections``. Centring: FROSH Algorithm 1, step 7.

    Examples
    --------
    >>> import torch
    >>> from fastsketch.torch import FrequentDirections
    >>> rows = torch.randn(500, 4, 40, generator=torch.Generator().manual_seed(0))
    >>> s = FrequentDirections(8, center=False).update(rows)
    >>> flat = rows.reshape(-1, 40).double()
    >>> b = s.sketch().double()
    >>> error = torch.linalg.matrix_norm(flat.T @ flat - b.T @ b - s.alpha * torch.eye(40), 2)
    >>> bool(error <= s.error_bound), s.n_rows
    (True, 2000)
    """

    def __init__(
        self,
        sketch_size: int = 64,
        *,
        method: MethodName = "rfd",
        center: bool = True,
        buffer_size: int | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        as_choice(method, "method", DEVICE_METHODS)
        if dtype not in (torch.float32, torch.float64):
            raise ValueError(f"dtype must be torch.float32 or torch.float64, got {dtype!r}")
        if buffer_size is None:
            buffer_size = BUFFER_RATIO * as_integer(sketch_size, "sketch_size", 2)
        # has the parameters, the engine and what is read of it; its lock is that of this object
        name = str(dtype).removeprefix("torch.")
        self._host = host = HostSketch(
            sketch_size, method=method, buffer_size=buffer_size, solver="gram", center=center, dtype=name
        )
        self.sketch_size, self.method, self.center, self.dtype = host.sketch_size, host.method, host.center, dtype
        self.buffer_size = cast(int, host.buffer_size)
        self._guard = host._guard
        self._directions: tuple[Any, Tensor, Tensor] | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return sketch_of, (self.state_dict(),)

    def __repr__(self) -> str:
        seen = f"{self.n_rows:,} rows of {self.n_features:,} features" if self.n_features else "no rows yet"
        return f"<FrequentDirections(sketch_size={self.sketch_size}): {seen}>"

    @property
    def n_rows(self) -> int:
        """Return the number of rows seen."""
        return self._host.n_rows

    @property
    def n_features(self) -> int | None:
        """Return the number of columns, or None before the first row."""
        return self._host.n_features

    @property
    def device(self) -> torch.device | None:
        """Return the device of the rows, or None before the first row."""
        return None if self.n_features is None else self._engine.buffer.device

    @property
    def _engine(self) -> DeviceEngine:
        return cast("DeviceEngine", self._host._seen_engine())

    def memory_bytes(self, n_features: int) -> int:
        """Return the bytes on the device that a sketch of rows of this width takes at most, temporary ones included.

        Parameters
        ----------
        n_features : int

        Returns
        -------
        int
        """
        d, m = as_integer(n_features, "n_features", 1), self.sketch_size + self.buffer_size
        return (2 * m + self.sketch_size) * d * self.dtype.itemsize + 8 * (self.sketch_size + 8) * d + 16 * m * m

    def _settings(self) -> dict[str, Any]:
        """Return the parameters and n_features by name, the dtype as a string."""
        return {name: getattr(self, name) for name in SETTINGS} | {"dtype": str(self.dtype).removeprefix("torch.")}

    def _check_settings(self, settings: dict[str, Any], owner: str) -> None:
        """Raise ValueError if the parameters of another sketch differ, or the widths of two that have seen rows."""
        for name, value in self._settings().items():
            if settings[name] != value and not (name == "n_features" and None in (settings[name], value)):
                raise ValueError(f"{owner} must have {name}={value!r} as this sketch, got {settings[name]!r}")

    def _empty(self, d: int, device: torch.device) -> DeviceEngine:
        return DeviceEngine(self._host._setting, d, dtype=np.dtype(self._host.dtype), device=device)

    def _set(self, arrays: Any, d: int, device: torch.device) -> None:
        """Replace the state by the arrays of an engine of the same parameters."""
        engine = self._empty(d, device)
        engine.restore(arrays)
        self._host._replace(engine, 0.0)

    # -- rows ------------------------------------------------------------------------------------------------------
    @uncompiled
    @changes
    def update(self, rows: Tensor) -> Self:
        """Add the rows of a tensor to the sketch.

        Parameters
        ----------
        rows : Tensor (..., d)
            Dense, real and finite, of any dtype and on any device; (d,) is one row. All dimensions but the last count
            rows. Gradients are not tracked. Rows are converted to the dtype and device of the sketch.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If the rows are not a dense tensor of finite real numbers with the number of columns seen before. The sketch
            is then unchanged.

        Examples
        --------
        >>> import torch
        >>> from fastsketch.torch import FrequentDirections
        >>> activations = torch.randn(2, 100, 40, dtype=torch.bfloat16, requires_grad=True)
        >>> FrequentDirections(8).update(activations).n_rows
        200
        """
        flat = self._flat(rows)
        if len(flat):
            with full_precision(flat.device):
                engine = self._host._engine or self._empty(flat.shape[1], flat.device)
                self._host._reading = None
                engine.update(flat)
                self._host._engine = engine
        return self

    def _flat(self, rows: Tensor) -> Tensor:
        """Check the type and shape of rows, and return them as a detached matrix on the device of the sketch."""
        if not isinstance(cast("Any", rows), Tensor):
            raise TypeError(f"rows must be a tensor, got {type(rows).__name__}: fs.FrequentDirections takes arrays")
        check_whole(rows)
        plain = rows.layout == torch.strided and not (rows.is_nested or rows.is_quantized)
        if not plain or rows.is_complex() or rows.is_meta:
            layout = "nested" if rows.is_nested else rows.layout
            raise TypeError(f"rows must be a dense tensor of real numbers, got {layout}, {rows.dtype} on {rows.device}")
        if not rows.ndim or not rows.shape[-1]:
            raise ValueError(f"rows must have at least one column, got shape {tuple(rows.shape)}")
        d = self.n_features or rows.shape[-1]
        if rows.shape[-1] != d:
            raise ValueError(f"rows must have {d} columns as the rows before, got {rows.shape[-1]}")
        flat = rows.detach().reshape(-1, d)
        if not flat.is_floating_point() or flat.dtype.itemsize == 1:  # torch computes nothing in float8
            flat = flat.to(self.dtype)
        return flat.to(self.device or ("cpu" if flat.device.type == "mps" else flat.device))

    # -- read-outs -------------------------------------------------------------------------------------------------
    def _there(self, array: NDArray[Any]) -> Tensor:
        return UNTYPED.from_numpy(array).to(self.device)

    def _read(self) -> tuple[Any, Tensor, Tensor]:
        """Return the results on the CPU, and singular values (r,) and directions (r, d) in float64 on the device."""
        reading = self._host._read()
        if self._directions is None or self._directions[0] is not reading:
            s, vt = (self._there(x.astype(np.float64)) for x in (reading.s, reading.vt))
            self._directions = reading, s, vt
        return self._directions

    def spectrum(self) -> TensorSpectrum:
        """Estimate the leading eigenvalues of A'A for the rows A seen so far, each with a guaranteed interval.

        Returns
        -------
        TensorSpectrum
            ``values``, ``low`` and ``high`` (r,), float64 on the CPU, and ``vectors`` (r, d) on the device; as
            ``fs.FrequentDirections.spectrum`` has them. Divided by ``n_rows`` they are variances.

        Raises
        ------
        ValueError
            If the sketch has seen no rows.

        Examples
        --------
        >>> import torch
        >>> from fastsketch.torch import FrequentDirections
        >>> rows = torch.randn(500, 40, generator=torch.Generator().manual_seed(0)) * torch.arange(1, 41) ** -0.5
        >>> top = FrequentDirections(16).update(rows).spectrum()
        >>> true = torch.linalg.svdvals(rows.double() - rows.double().mean(0))[:15] ** 2
        >>> bool(((top.low[:15] <= true) & (true <= top.high[:15])).all())
        True
        """
        values, vectors, low, high = map(UNTYPED.from_numpy, self._host.spectrum())
        return TensorSpectrum(values, vectors.to(self.device, self.dtype), low, high)

    def sketch(self) -> Tensor:
        """Return the sketch matrix B (r, d), r <= sketch_size, whose product B'B approximates A'A."""
        return self._there(self._host.sketch())

    @property
    def components(self) -> Tensor:
        """Return the right singular vectors of the sketch matrix, orthonormal rows (r, d), the leading one first."""
        return self._there(self._host.components)

    @property
    def singular_values(self) -> Tensor:
        """Return the singular values (r,) of the sketch matrix, descending, float64 on the device."""
        return self._there(self._host.singular_values.astype(np.float64))

    @property
    def shrinkage(self) -> float:
        """Return the total that shrinks have subtracted from the squared singular values (Delta in the papers)."""
        return self._host.shrinkage

    @property
    def error_bound(self) -> float:
        """Return the guaranteed bound on the spectral norm of the error, as ``fs.FrequentDirections`` does."""
        return self._host.error_bound

    @property
    def alpha(self) -> float:
        """Return the regularisation alpha = Delta / 2 of method "rfd"; 0 for other methods."""
        return self._host.alpha

    @property
    def squared_norm(self) -> float:
        """Return the sum of squares of all entries of the rows, after centring."""
        return self._host.squared_norm

    @property
    def mean(self) -> Tensor | None:
        """Return the mean (d,) of the rows in float64 on the device; None without centring or before the first row."""
        mean = self._host.mean
        return None if mean is None else self._there(mean)

    # -- the covariance --------------------------------------------------------------------------------------------
    def _apply(self, x: Tensor, alpha: float | None, scale: float, power: float) -> Tensor:
        """Multiply the rows of x by ((B'B + alpha I) / scale)^power, in float64."""
        _, s, vt = self._read()
        alpha = self._host._regulariser(alpha, inverse=power < 0)
        inside = x @ vt.T
        outside = (alpha / scale) ** power if len(s) < vt.shape[1] else 0.0
        return outside * (x - inside @ vt) + (((s.square() + alpha) / scale) ** power * inside) @ vt

    @torch.no_grad()
    def solve(self, v: Tensor, *, alpha: float | None = None) -> Tensor:
        """Solve (B'B + alpha I) x = v for the sketch matrix B, by the Woodbury identity.

        Parameters
        ----------
        v : Tensor (d,) or (d, k)
            Right-hand sides.
        alpha : float, optional
            Regulariser used instead of the sketch's own ``alpha``; required where that is 0 and B'B is singular.

        Returns
        -------
        Tensor of the shape of v
            In the dtype of the sketch, on its device.

        Raises
        ------
        TypeError, ValueError
            If v does not fit, or the matrix is singular.
        """
        d = self._engine.n_features
        if not isinstance(cast("Any", v), Tensor):
            raise TypeError(f"v must be a tensor, got {type(v).__name__}")
        if v.ndim not in (1, 2) or v.shape[0] != d:
            raise ValueError(f"v must have shape ({d},) or ({d}, k), got {tuple(v.shape)}")
        columns = self._flat(v if v.ndim == 1 else v.T).to(torch.float64)
        return self._apply(columns, alpha, 1.0, -1.0).to(self.dtype).T.reshape(v.shape)

    @torch.no_grad()
    def whiten(self, rows: Tensor, *, alpha: float | None = None, inverse: bool = False) -> Tensor:
        """Multiply centred rows by the inverse square root of the sketched covariance C = (B'B + alpha I) / n.

        Parameters
        ----------
        rows : Tensor (..., d)
        alpha : float, optional
            As for ``solve``, in units of squared rows.
        inverse : bool, default False
            Undo the whitening: multiply by the square root of C and add the mean.

        Returns
        -------
        Tensor (..., d)
            In the dtype of the sketch, on its device.

        Raises
        ------
        TypeError, ValueError
            If the rows have another width, or C is singular.
        """
        x, mean = self._flat(rows).to(torch.float64), 0.0 if self.mean is None else self.mean
        if as_flag(inverse, "inverse"):
            out = self._apply(x, alpha, self._host.total_weight, 0.5) + mean
        else:
            out = self._apply(x - mean, alpha, self._host.total_weight, -0.5)
        return out.to(self.dtype).reshape(rows.shape)

    @torch.no_grad()
    def mahalanobis(self, rows: Tensor, *, alpha: float | None = None) -> Tensor:
        """Compute the squared Mahalanobis distance of each row from the mean, with C = (B'B + alpha I) / n.

        Parameters
        ----------
        rows : Tensor (..., d)
        alpha : float, optional
            As for ``solve``, in units of squared rows.

        Returns
        -------
        Tensor (...,)
            In the dtype of the sketch, on its device; without centring the distances are from 0.

        Raises
        ------
        TypeError, ValueError
            If the rows have another width, or C is singular.
        """
        return self.whiten(rows, alpha=alpha).square().sum(-1, dtype=torch.float64).to(self.dtype)

    # -- merges ----------------------------------------------------------------------------------------------------
    @changes
    def merge(self, other: Self) -> Self:
        """Add the rows that another sketch has seen.

        Parameters
        ----------
        other : FrequentDirections
            Of the same parameters and width, on any device. It does not change.

        Returns
        -------
        self

        Raises
        ------
        TypeError, ValueError
            If the two do not match; this sketch is then unchanged.
        """
        if not isinstance(cast("Any", other), FrequentDirections):
            raise TypeError(f"other must be a fastsketch.torch.FrequentDirections, got {type(other).__name__}")
        self._check_settings(other._settings(), "other")
        if other.device is not None:
            engine = self._host._copied().merge(other._host._copied())._seen_engine()
            self._set(engine.arrays(), engine.n_features, self.device or other.device)
        return self

    @changes
    def all_reduce(self, group: Any = None) -> Self:
        """Merge the sketches of all processes of a group, so that all hold bitwise the same sketch of all rows.

        The sketches are merged along a binary tree on the CPU, and the result is broadcast. Each is shrunk before it is
        sent, so that at most ``sketch_size`` rows are, in the format of the method ``save`` of models, without pickle.
        Every process calls this method, also one whose sketch has seen no rows. With NCCL, ``torch.cuda.set_device``
        must have been called before.

        Parameters
        ----------
        group : torch.distributed.ProcessGroup, optional
            By default all processes; without a process group there is nothing to do.

        Returns
        -------
        self

        Raises
        ------
        ValueError
            On all processes, if sketches have different parameters or widths.
        """
        from torch import distributed as dist

        if group is None and not dist.is_initialized():
            return self
        if not isinstance(group, dist.ProcessGroup | None):
            raise TypeError(f"group must be a torch.distributed.ProcessGroup, got {type(group).__name__}")
        members, rank = dist.get_process_group_ranks(group or dist.group.WORLD), dist.get_rank(group)
        config, step = dist.get_backend_config(group), 1
        wire = "cpu" if "cpu:" in config else config.partition(":")[0]  # where the backend has tensors

        def tensor_of(content: bytearray) -> Tensor:
            return UNTYPED.frombuffer(content, dtype=torch.uint8).to(wire)

        def transferred(operation: Any, peer: int, content: bytes = b"") -> HostSketch:
            """Send, receive or broadcast a sketch as bytes, preceded by their number, and return the sketch."""
            length = torch.tensor([len(content)], device=wire)
            operation(length, peer, group)
            data = tensor_of(bytearray(content or int(length)))
            operation(data, peer, group)
            return cast("HostSketch", from_bytes(data.cpu().numpy().tobytes()))

        mine = json.dumps({**self._settings(), "device": self.device and self.device.type})
        headers = [tensor_of(bytearray(HEADER_BYTES)) for _ in members]
        dist.all_gather(headers, tensor_of(bytearray(mine.encode().ljust(HEADER_BYTES))), group)
        everyone = [json.loads(bytes(header.tolist())) for header in headers]
        for settings in everyone:
            self._check_settings(settings, "all sketches of the group")
        device = next((settings["device"] for settings in everyone if settings["device"]), None)
        if device is None:
            return self
        model = self._host._copied()
        while step < len(members) and rank % (2 * step) == 0:
            if rank + step < len(members):
                model.merge(transferred(dist.recv, members[rank + step]))
            step *= 2
        if model.n_features is not None:
            engine = cast("DenseEngine", model._engine)
            engine.replace_rows(engine.reduce())
        content = model.to_bytes()
        if rank:
            transferred(dist.send, members[rank - step], content)
        merged = transferred(dist.broadcast, members[0], b"" if rank else content)._seen_engine()
        self._set(merged.arrays(), merged.n_features, self.device or torch.device(device))
        return self

    # -- the state -------------------------------------------------------------------------------------------------
    @changes
    def to(self, device: "torch.device | str | int") -> Self:
        """Move the rows of the sketch to another device, to which later batches are copied.

        Parameters
        ----------
        device : torch.device or str

        Returns
        -------
        self
        """
        target = as_device(device)
        if self.n_features is not None:
            self._set(self._engine.arrays(), self.n_features, target)
        return self

    @reads
    def state_dict(self) -> dict[str, Any]:
        """Return the parameters and the state as a dict of numbers, strings and tensors, for ``torch.save``.

        Large tensors are copies on the device of the sketch; small ones are float64 or int64 on the CPU.
        """
        arrays = {} if self.n_features is None else self._engine.arrays()
        return self._settings() | {name: torch.as_tensor(x).clone() for name, x in arrays.items()}

    @changes
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of another sketch with the same parameters.

        Parameters
        ----------
        state_dict : dict
            As ``state_dict()`` returned it. Rows stay on the device of this sketch, or of the dict if it has no rows.

        Raises
        ------
        TypeError
            If it is not such a dict.
        ValueError
            If it has other parameters, or arrays that are not the state of a sketch. Nothing is then loaded.
        """
        if not isinstance(cast("Any", state_dict), dict) or not {*SETTINGS} <= state_dict.keys():
            raise TypeError("state_dict must be what state_dict() returned, with the parameters and 'n_features'")
        self._check_settings({**state_dict, "n_features": None}, "state_dict")
        if state_dict["n_features"] is None:
            self._host._begin()
            return
        d = as_integer(state_dict["n_features"], "n_features", 1)
        try:
            arrays = {name: x.detach().cpu().numpy() for name, x in state_dict.items() if isinstance(x, Tensor)}
            DenseEngine.validate(arrays, self._host._setting, d, dtype=np.dtype(self._host.dtype))
        except (KeyError, TypeError) as error:  # an array is missing, or in bfloat16, which NumPy does not have
            raise ValueError(f"state_dict must have the arrays that state_dict() returned: {error!r}") from None
        self._set(arrays, d, self.device or state_dict["buffer"].device)

    def to_fastsketch(self) -> HostSketch:
        """Return the sketch as a ``fs.FrequentDirections`` on the CPU, with the same state.

        Returns
        -------
        fs.FrequentDirections
            With solver="gram" and the same parameters.
        """
        return self._host.copy()

    @classmethod
    def from_fastsketch(cls, model: HostSketch, *, device: "torch.device | str" = "cpu") -> Self:
        """Return a sketch with the state of a ``fs.FrequentDirections``.

        Parameters
        ----------
        model : fs.FrequentDirections
            With rows, of solver "gram" with dense rows, without tolerance, compressor, decay, alpha0 and second pass.
            Names of columns and notes are not kept. Rows with weights that have not been centred yet are centred first,
            by a shrink.
        device : torch.device or str, default "cpu"

        Returns
        -------
        FrequentDirections

        Raises
        ------
        TypeError, ValueError
            If the model is not such a sketch.
        """
        if not isinstance(cast("Any", model), HostSketch):
            raise TypeError(f"model must be a fs.FrequentDirections, got {type(model).__name__}")
        engine, method = model._engine, METHODS[model.method]
        plain = DenseEngine is type(engine) and model._certain_high is None and not (model._regained or model.alpha0)
        setting = EngineSetting(2) if engine is None else engine.setting
        size, center, rows = setting.sketch_size, setting.center, setting.buffer_size
        known = EngineSetting(size, method.share_lowered, buffer_size=rows, solver="gram", center=center)
        if not plain or setting != known:
            raise ValueError(
                "model must have seen dense rows with solver='gram' and a method other than 'tfd', without tolerance, "
                "compressor, decay, beta, alpha0 and second pass"
            )
        engine = cast("DenseEngine", engine).clone()
        if center and (engine.root[engine.new_rows()] != 1.0).any():
            engine.flush()
        engine.root[:] = 1.0
        dtype = getattr(torch, engine.dtype.name)
        out = cls(size, method=model.method, center=center, buffer_size=engine.capacity - size, dtype=dtype)
        out._set(engine.arrays(), engine.n_features, as_device(device))
        return out


def sketch_of(state: dict[str, Any]) -> FrequentDirections:
    """Return a sketch with the parameters and the state of a ``state_dict``."""
    settings: dict[str, Any] = {name: state[name] for name in SETTINGS[:4]}
    out = FrequentDirections(**settings, dtype=getattr(torch, state["dtype"]))
    out.load_state_dict(state)
    return out
