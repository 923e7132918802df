"""Sketches of the inputs, outputs or output gradients of the modules of a network, taken by hooks."""

# pyright: reportUnknownVariableType=false, reportUnknownMemberType=false, reportUnknownArgumentType=false
# pyright: reportUnknownLambdaType=false, reportMissingImports=false
# (torch declares only part of its types; safetensors need not be installed)

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from difflib import get_close_matches
from fnmatch import filter as matching
from functools import partial
from math import inf
from os import PathLike, fspath
from typing import Any, Literal, cast

import torch
from torch import Tensor
from torch.nn import DataParallel, Module
from torch.nn.parallel import DistributedDataParallel

from fastsketch._core.progress import ProgressLine
from fastsketch._core.validation import as_choice, as_real
from fastsketch._core.warning import warn_caller
from fastsketch.data.files._replacing import replacing
from fastsketch.sketching._methods import MethodName
from fastsketch.torch._base import UNTYPED
from fastsketch.torch._frequent_directions import SETTINGS, FrequentDirections, as_device, sketch_of

Mask = str | Callable[[Any], Tensor] | None
Modules = str | type[Module] | Iterable[str | type[Module]]


def collect(
    model: Module,
    batches: Iterable[Any],
    *,
    modules: Modules,
    of: Literal["inputs", "outputs", "gradients"] = "inputs",
    reduce: Literal["tokens", "mean"] = "tokens",
    mask: Mask = None,
    forward: Callable[[Module, Any], Any] | None = None,
    sketch_size: int = 64,
    method: MethodName = "rfd",
    center: bool = True,
    dtype: torch.dtype = torch.float32,
    max_memory: float | None = None,
    progress: bool | None = None,
) -> dict[str, FrequentDirections]:
    """Run a model on batches, and sketch the inputs, outputs or output gradients of its modules.

    The hooks on the modules are removed at the end, also after an exception, and later calls of ``backward`` add no
    rows. The model stays in its mode: call
    ``model.eval()`` before, unless dropout is to act. A module that is called several times in a step gives as many
    batches. Recomputation in checkpointed modules is not counted.

    Parameters
    ----------
    model : Module
        May be wrapped in DistributedDataParallel; each process then has sketches of its own batches, which
        ``all_reduce`` merges.
    batches : iterable
        Of mappings (keyword arguments of the model), tuples or lists (positional arguments), or single arguments.
    modules : str, type, or iterable of these
        Names as ``model.named_modules()`` has them, with wildcards as in a shell, or classes of modules.
    of : {"inputs", "outputs", "gradients"}, default "inputs"
        What is sketched: the first tensor among the arguments or the results of the module, or the gradient of the
        loss with respect to the latter.
    reduce : {"tokens", "mean"}, default "tokens"
        "tokens": one row for each token. "mean": one row for each sequence, the mean of its tokens.
    mask : str or callable, optional
        Which tokens count, (batch, tokens), nonzero for those that do: the name of an entry of the batch, or a function
        of the batch.
    forward : callable, optional
        Called with the model and a batch instead of the model itself. With "gradients" it returns the loss, or None if
        it has called ``backward``.
    sketch_size, method, center, dtype
        As for ``FrequentDirections``.
    max_memory : float, optional
        Bytes that the sketches may take on the device, by ``FrequentDirections.memory_bytes``. It is checked before a
        sketch is allocated.
    progress : bool, optional
        Print the progress to stderr; by default on a terminal.

    Returns
    -------
    dict of str to FrequentDirections
        By the names of modules.

    Raises
    ------
    TypeError
        If the model is wrapped in DataParallel, whose replicas have hooks on several threads.
    ValueError
        If no module has a given name, a mask has another shape than the tokens or a NaN, the loss is not a scalar, or
        `max_memory` is exceeded.

    Warns
    -----
    UserWarning
        If modules gave no rows: they were not called, or no gradient reached their outputs.

    Notes
    -----
    The last dimension of a tensor counts features, which is not so in the outputs of convolutions (batch, channels,
    ...). Inputs and outputs are collected under ``torch.no_grad``. With "gradients", ``backward`` adds to the gradients
    of the parameters as in training.

    Examples
    --------
    >>> import torch
    >>> from fastsketch.torch import collect
    >>> model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(), torch.nn.Linear(30, 2))
    >>> sketches = collect(model, torch.randn(10, 64, 20), modules=torch.nn.Linear, sketch_size=8)
    >>> {name: (sketch.n_rows, sketch.n_features) for name, sketch in sketches.items()}
    {'0': (640, 20), '2': (640, 30)}
    """
    if isinstance(model, DataParallel):
        raise TypeError("model must not be wrapped in DataParallel: pass model.module, or use DistributedDataParallel")
    for name, value, fits, kind in (
        ("model", model, isinstance(cast("Any", model), Module), "a torch.nn.Module"),
        ("batches", batches, isinstance(cast("Any", batches), Iterable), "an iterable of batches"),
        ("mask", mask, mask is None or isinstance(mask, str) or callable(mask), "a name or a function of a batch"),
        ("forward", forward, forward is None or callable(forward), "a function of the model and a batch"),
    ):
        if not fits:
            raise TypeError(f"{name} must be {kind}, got {type(value).__name__}")
    limit = inf if max_memory is None else as_real(max_memory, "max_memory", 0.0, inf)
    as_choice(of, "of", ("inputs", "outputs", "gradients"))
    as_choice(reduce, "reduce", ("tokens", "mean"))
    chosen = _select(model.module if isinstance(model, DistributedDataParallel) else model, modules)
    sketches = {name: FrequentDirections(sketch_size, method=method, center=center, dtype=dtype) for name in chosen}
    growing = dict(sketches)  # emptied at the end: hooks on outputs that the caller keeps may be called later
    memory, token_mask, line = 0, None, ProgressLine("collect", progress)

    def take(name: str, value: Any) -> None:
        nonlocal memory
        sketch, x = growing.get(name), _first_tensor(value)
        if sketch is None or x is None or (of != "gradients" and _in_backward()):
            return
        rows = _rows(x.detach(), name, reduce, token_mask)
        if sketch.n_features is None:
            memory += sketch.memory_bytes(rows.shape[-1])
            if memory > limit:
                raise ValueError(f"max_memory is {limit:g} bytes, the sketches up to {name!r} take {memory:,}")
        try:
            sketch.update(rows)
        except (TypeError, ValueError) as error:
            error.add_note(f"in the {of} of module {name!r}")
            raise

    def hook(name: str, module: Module, args: Any, kwargs: Any, output: Any = None) -> None:
        if of != "gradients":
            take(name, output if of == "outputs" else (args, kwargs))
        elif (x := _first_tensor(output)) is not None and x.requires_grad:
            x.register_hook(partial(take, name))

    with ExitStack() as stack, torch.set_grad_enabled(of == "gradients"):
        stack.callback(growing.clear)
        for name, module in chosen.items():
            register: Any = module.register_forward_pre_hook if of == "inputs" else module.register_forward_hook
            stack.callback(register(partial(hook, name), with_kwargs=True).remove)
        total = len(batches) if hasattr(batches, "__len__") else None  # type: ignore[arg-type]
        for done, batch in enumerate(batches, start=1):
            token_mask = _mask_of(batch, mask)
            result = (forward or _call)(model, batch)
            if of == "gradients" and result is not None:
                _backward(result)
            n_rows = max(sketch.n_rows for sketch in sketches.values())
            line.show(done / total if total else 0.0, n_rows, final=done == total, extra_entries={"MB": memory / 1e6})
    if silent := [name for name, sketch in sketches.items() if not sketch.n_rows]:
        called = "they were not called with floating-point tensors, or the mask kept no token"
        why = "no gradient reached their outputs" if of == "gradients" else called
        warn_caller(f"modules {', '.join(map(repr, silent))} gave no rows: {why}")
    return sketches


def _select(model: Module, modules: Modules) -> dict[str, Module]:
    """Return the modules of the given names, patterns or classes, by name."""
    named, given = dict(model.named_modules()), cast("Any", modules)
    every = dict(model.named_modules(remove_duplicate=False))  # a module may have several names
    chosen: dict[str, Module] = {}
    for kind in given if isinstance(given, Iterable) and not isinstance(given, str | type) else [given]:
        if isinstance(kind, type):
            names = [name for name, module in named.items() if isinstance(module, kind)]
        elif isinstance(kind, str):
            names = matching(named, kind) or matching(every, kind)
        else:
            raise TypeError(f"modules must be names or classes of modules, got {type(kind).__name__}")
        if not names:
            near = get_close_matches(str(kind), named, 1)
            hint = f": did you mean {near[0]!r}?" if near else ": model.named_modules() lists them"
            raise ValueError(f"modules: the model has no module {kind!r}{hint}")
        chosen |= {name: every[name] for name in names}
    if not chosen:
        raise ValueError("modules must have at least one name or class")
    return chosen


def _in_backward() -> bool:
    """Return True inside of ``backward``, where checkpointed modules are called a second time."""
    return bool(UNTYPED._C._current_graph_task_id() != -1)


def _first_tensor(value: Any) -> Tensor | None:
    """Return the first floating-point tensor in nested tuples, lists and mappings, or None."""
    if isinstance(value, Tensor):
        return value if value.is_floating_point() and value.ndim else None
    inner: Iterable[Any] = value.values() if isinstance(value, Mapping) else value
    tensors = map(_first_tensor, inner) if isinstance(value, Mapping | tuple | list) else ()
    return next((tensor for tensor in tensors if tensor is not None), None)


def _rows(x: Tensor, name: str, reduce: str, mask: Tensor | None) -> Tensor:
    """Return the rows of a tensor (batch, tokens, d) that count, or their means over the tokens of each sequence."""
    if mask is not None and mask.shape != x.shape[:-1]:
        shapes = f"{tuple(x.shape[:-1])}, got {tuple(mask.shape)}"
        raise ValueError(f"mask must have the shape (batch, tokens) of module {name!r}, {shapes}")
    kept = x.new_ones(x.shape[:-1], dtype=torch.bool) if mask is None else mask.to(x.device) != 0
    if reduce == "tokens":
        return x if mask is None else x[kept]
    if x.ndim != 3:
        raise ValueError(f"reduce='mean' needs tensors (batch, tokens, d), module {name!r} has {tuple(x.shape)}")
    wide, count = x.to(torch.promote_types(x.dtype, torch.float32)), kept.sum(1)
    total = wide.masked_fill(kept.logical_not()[..., None], 0.0).sum(1)
    return total[count > 0] / count[count > 0, None]


def _mask_of(batch: Any, mask: Mask) -> Tensor | None:
    if mask is None:
        return None
    if isinstance(mask, str) and not (isinstance(batch, Mapping) and mask in batch):
        raise ValueError(f"mask is {mask!r}, which is no entry of the batch: it must be a mapping that has it")
    found = batch[mask] if isinstance(mask, str) else mask(batch)
    try:
        tensor: Tensor = UNTYPED.as_tensor(found)
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"mask must give a tensor (batch, tokens), got {type(found).__name__}: {error}") from None
    if tensor.isnan().any():
        raise ValueError("mask must be zero or nonzero for each token, got NaN")
    return tensor


def _call(model: Module, batch: Any) -> Any:
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple | list) else model(batch)


def _backward(result: Any) -> None:
    """Call ``backward`` on a loss, or on the loss of the results of a model."""
    loss = getattr(result, "loss", result)
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        got = f"{type(loss).__name__}{f' of shape {tuple(loss.shape)}' if isinstance(loss, Tensor) else ''}"
        raise ValueError(f"of='gradients' needs a loss, a tensor of one element, got {got}: return it from forward")
    if loss.requires_grad:
        loss.backward()


def save_sketches(sketches: Mapping[str, FrequentDirections], path: "str | PathLike[str]") -> None:
    """Save sketches by name: with safetensors if the path ends in ".safetensors", else with ``torch.save``.

    Parameters
    ----------
    sketches : mapping of str to FrequentDirections
        As ``collect`` returned them.
    path : str or path

    Raises
    ------
    ImportError
        If the path ends in ".safetensors", and safetensors is not installed.

    Examples
    --------
    >>> import os, tempfile, torch
    >>> from fastsketch.torch import FrequentDirections, load_sketches, save_sketches
    >>> sketches = {"layers.0": FrequentDirections(8).update(torch.randn(100, 20))}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_sketches(sketches, os.path.join(folder, "sketches.pt"))
    ...     loaded = load_sketches(os.path.join(folder, "sketches.pt"))
    >>> loaded["layers.0"].n_rows
    100
    """
    given: Any = sketches
    if not isinstance(given, Mapping) or not all(isinstance(sketch, FrequentDirections) for sketch in given.values()):
        raise TypeError(f"sketches must be a dict of sketches by name, as collect returns it, got {sketches!r}")
    states = {name: sketch.state_dict() for name, sketch in sketches.items()}
    tensors = {f"{name}/{key}": x for name in states for key, x in states[name].items() if isinstance(x, Tensor)}
    settings = json.dumps({name: {key: states[name][key] for key in SETTINGS} for name in states})
    with replacing(path) as file:
        if fspath(path).endswith(".safetensors"):
            from safetensors.torch import save

            file.write(save(tensors, {"fastsketch": settings}))
        else:
            torch.save((tensors, settings), file)


def load_sketches(
    path: "str | PathLike[str]", *, device: "torch.device | str" = "cpu"
) -> dict[str, FrequentDirections]:
    """Load sketches that ``save_sketches`` has saved.

    Parameters
    ----------
    path : str or path
    device : torch.device or str, default "cpu"

    Returns
    -------
    dict of str to FrequentDirections

    Raises
    ------
    ValueError
        If the file does not have the states of sketches.

    Examples
    --------
    >>> import os, tempfile, torch
    >>> from fastsketch.torch import collect, load_sketches, save_sketches
    >>> model = torch.nn.Linear(20, 3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "sketches.pt")
    ...     save_sketches(collect(model, torch.randn(10, 64, 20), modules=torch.nn.Linear), path)
    ...     load_sketches(path)[""].n_features
    20
    """
    target = as_device(device)
    try:
        if fspath(path).endswith(".safetensors"):
            from safetensors import safe_open

            with safe_open(path, "pt") as file:
                tensors = {key: file.get_tensor(key) for key in list(file.keys())}
                settings = file.metadata()["fastsketch"]
        else:
            tensors, settings = torch.load(path, map_location="cpu", weights_only=True)
        states = json.loads(settings)
        for key, x in tensors.items():
            name, _, array = key.rpartition("/")
            states[name][array] = x
        return {name: sketch_of(state).to(target) for name, state in states.items()}
    except (OSError, ImportError):
        raise
    except Exception as error:  # whatever pickle, safetensors and json make of another file
        raise ValueError(f"{path} is not a file of sketches, as save_sketches writes them: {error!r}") from None
