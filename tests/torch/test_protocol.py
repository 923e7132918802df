"""What the optimizers take, and refuse, of torch: states of others, shards, compiled functions, many processes."""

import copy
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fastsketch.torch import AdaFD, AdaFFD, SketchedSOAP  # noqa: E402

torch.set_num_threads(1)
VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
OPTIONS = {SketchedSOAP: {"rank": 4, "every": 3}, AdaFD: {"sketch_size": 4}, AdaFFD: {"sketch_size": 4}}
KINDS = pytest.mark.parametrize("kind", list(OPTIONS))


def stepped(kind, shape=(20, 24), n=5, **options):
    """Return a parameter of random gradients and its optimizer after n steps."""
    generator = torch.Generator().manual_seed(0)
    p = torch.ones(shape, requires_grad=True)
    optimizer = kind([p], **OPTIONS[kind], **options)
    for _ in range(n):
        p.grad = torch.randn(shape, generator=generator)
        optimizer.step()
    return p, optimizer


@KINDS
def test_states_of_other_shapes_dtypes_and_ranks_are_refused_by_name(kind):
    _, optimizer = stepped(kind)
    good = optimizer.state_dict()
    names = [name for name, value in good["state"][0].items() if isinstance(value, torch.Tensor)]
    counts = [name for name, value in good["state"][0].items() if type(value) is int]
    p, other = stepped(kind, n=2)
    before = copy.deepcopy((p, other.state_dict()))
    for name in names:
        for bad in (None, torch.zeros(3), good["state"][0][name].int(), good["state"][0][name] * torch.nan):
            state = copy.deepcopy(good)
            state["state"][0][name] = bad
            with pytest.raises(ValueError, match=rf"state '{name}' of a parameter of shape \(20, 24\) must be"):
                other.load_state_dict(state)
    for name in counts:
        for bad in (-1, 2**40, 2**64, 1.5, "1"):
            if bad != 2**40 or name in ("rank", "n_rows"):
                state = copy.deepcopy(good)
                state["state"][0][name] = bad
                with pytest.raises(ValueError, match=f"'{name}'.* of a parameter of shape"):
                    other.load_state_dict(state)
    sums = [name for name in names if name in ("squares", "left_values", "right_lost", "seen")]
    bases = [name for name in names if name.endswith("_basis")]
    for name, factor in [*((name, -1) for name in sums), *((name, 1e30) for name in bases), *((b, 0) for b in bases)]:
        state = copy.deepcopy(good)
        state["state"][0][name] = factor * state["state"][0][name]
        with pytest.raises(ValueError, match=rf"state '{name}' of a parameter of shape \(20, 24\) must "):
            other.load_state_dict(state)
    sizes = {"rank": 5, "sketch_size": 5}
    group = copy.deepcopy(good)
    for name in sizes.keys() & group["param_groups"][0].keys():
        group["param_groups"][0][name] = sizes[name]
    with pytest.raises(ValueError, match="of a parameter of shape"):
        other.load_state_dict(group)
    group["param_groups"][0]["lr"] = -1.0
    with pytest.raises(ValueError, match="lr must lie"):
        other.load_state_dict(group)
    with pytest.raises(ValueError, match=r"of a parameter of shape \(24, 30\)"):
        stepped(kind, shape=(24, 30))[1].load_state_dict(good)
    with pytest.raises(ValueError, match="parameter group"):
        kind([p, torch.ones(3, requires_grad=True)]).load_state_dict(good)
    assert torch.equal(p, before[0])
    for name, value in before[1]["state"][0].items():
        assert torch.equal(torch.as_tensor(value), torch.as_tensor(other.state[p][name])), name
    other.load_state_dict(good)
    assert other.state[p]["step"] == 5


def crafted(good):
    """Yield a name and a copy of a saved state of two parameters that holds what no optimizer saves, many times."""

    def changed(place, value):
        """Return a copy with one value replaced; `...` removes it."""
        state = copy.deepcopy(good)
        inner = state
        for key in place[:-1]:
            inner = inner[key]
        if value is ...:
            del inner[place[-1]]
        else:
            inner[place[-1]] = value
        return f"{place} {value!r}", state

    entry, group = good["state"][0], good["param_groups"][0]
    for thing in (None, 3, 1.5, "x", b"x", [1], (1,), {1}, {1: 2}, torch.ones(2), np.ones(2), object):
        yield repr(thing), thing
        for place in (("state",), ("param_groups",), ("param_groups", 0), ("param_groups", 0, "params"), ("state", 1)):
            yield changed(place, thing)
        if not isinstance(thing, int | str):
            yield changed(("param_groups", 0, "params", 1), thing)
        for name in entry:
            is_count = name in ("step", "rank", "n_rows", "turns") and isinstance(thing, int)
            if not is_count and not (name == "first_length" and isinstance(thing, int | float)):
                yield changed(("state", 0, name), thing)
    for place in (("state",), ("param_groups",), ("param_groups", 0, "params"), *(("state", 0, x) for x in entry)):
        if place[-1] != "first_length":
            yield changed(place, ...)
    for key in ("other", 7, None):
        yield changed(("state", 0, key), 1.0)
    yield changed(("state", 2), copy.deepcopy(entry))
    yield changed(("param_groups", 0, "params"), [0, 0])
    yield changed(("state",), {0: {0: copy.deepcopy(entry)}})
    yield changed(("state",), [copy.deepcopy(entry)])
    yield changed(("state", 0, "step"), True)
    for name, value in entry.items():
        if isinstance(value, torch.Tensor):
            for other in (
                value[None],
                value.to("meta"),
                value.to_sparse(),
                value.to(torch.complex64),
                value - torch.inf,
            ):
                yield changed(("state", 0, name), other)
        else:
            for other in (-1, -1.0, torch.nan, 10**400):
                yield changed(("state", 0, name), other)
    for option in OPTIONS_OF_STATES & group.keys():
        for other in (object, torch.ones(2), np.ones(2), {}, [1.0], torch.nan, -1, -(10**400)):
            yield changed(("param_groups", 0, option), other)
        yield changed(("param_groups", 0, option), ...)


OPTIONS_OF_STATES = {"lr", "betas", "eps", "weight_decay", "sketched", "rank", "sketch_beta", "every", "sketch_size"}


@KINDS
@pytest.mark.parametrize("sketched", [True, False])
def test_crafted_states_are_refused_by_errors_of_this_library_and_change_nothing(kind, sketched):
    def two(n):
        generator = torch.Generator().manual_seed(0)
        parameters = [torch.ones(20, 24, requires_grad=True) for _ in "ab"]
        optimizer = kind(parameters, **OPTIONS[kind], sketched=sketched)
        for _ in range(n):
            for p in parameters:
                p.grad = torch.randn(20, 24, generator=generator)
            optimizer.step()
        return parameters, optimizer

    good = two(5)[1].state_dict()
    parameters, optimizer = two(2)
    optimizer.load_state_dict(copy.deepcopy(good))
    assert optimizer.state[parameters[1]]["step"] == 5
    parameters, optimizer = two(3)
    before = copy.deepcopy(([p.detach() for p in parameters], optimizer.state_dict()))
    n_refused = 0
    for name, state in crafted(good):
        with pytest.raises((TypeError, ValueError)) as refusal:
            optimizer.load_state_dict(state)
            pytest.fail(f"loaded: {name}")
        assert "fastsketch" in refusal.traceback[-1].path.parts, (name, refusal.value)
        after = optimizer.state_dict()
        assert after["param_groups"] == before[1]["param_groups"], name
        for i, held in before[1]["state"].items():
            assert held.keys() == after["state"][i].keys()
            for key, value in held.items():
                assert torch.equal(torch.as_tensor(value), torch.as_tensor(after["state"][i][key])), (name, key)
        n_refused += 1
    assert n_refused > 150
    assert all(torch.equal(a, p.detach()) for a, p in zip(before[0], parameters, strict=True))
    optimizer.load_state_dict(good)
    assert optimizer.state[parameters[0]]["step"] == 5


@KINDS
def test_other_options_of_torch_are_refused_by_name(kind):
    for name in ("foreach", "fused", "capturable", "amsgrad"):
        with pytest.raises(TypeError, match=f"has no parameter '{name}'"):
            kind([torch.ones(3, requires_grad=True)], **{name: True})


@KINDS
def test_gradients_of_other_layouts_are_refused(kind):
    p, optimizer = stepped(kind)
    before = p.detach().clone()
    p.grad = torch.eye(20, 24).to_sparse()
    with pytest.raises(RuntimeError, match=f"{kind.__name__} takes dense, real gradients only"):
        optimizer.step()
    assert torch.equal(p, before)


@KINDS
def test_a_step_in_a_compiled_function_is_the_step(kind):
    """The function around it is compiled; the step itself runs as it is, in one piece."""
    results = []
    for backend in (None, "eager"):
        p, optimizer = stepped(kind, n=1)

        def step(rate, p=p, optimizer=optimizer):
            p.grad = rate * p.detach().square()
            optimizer.step()

        run = torch.compile(step, backend=backend) if backend else step
        for rate in (1.0, 2.0, 3.0, 4.0):
            run(torch.tensor(rate))
        results.append(p.detach().clone())
    assert torch.equal(*results)


@pytest.mark.skipif(VERSION < (2, 6), reason="torch's optimizers take no names")
def test_named_parameters_and_groups_of_them():
    layer = torch.nn.Linear(24, 20)
    optimizer = SketchedSOAP([{"params": layer.named_parameters()}], rank=4)
    layer(torch.ones(3, 24)).sum().backward()
    optimizer.step()
    assert [entry["kind"] for entry in optimizer.facts()] == ["sketch", "adam"]
    with pytest.raises(TypeError):
        SketchedSOAP([{"params": {layer.weight}}])  # a set has no order


PROCESS = """
import os
import sys
import torch
from torch import distributed
from fastsketch.torch import AdaFFD, SketchedSOAP

torch.set_num_threads(1)
rank, size, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size)
x, y = torch.randn(16, 24, generator=torch.Generator().manual_seed(1)), torch.arange(16) % 20
for kind, options in ((SketchedSOAP, {"rank": 4, "every": 3, "lr": 0.01}), (AdaFFD, {"sketch_size": 4})):
    torch.manual_seed(0)
    alone = torch.nn.Linear(24, 20).double()
    shared = torch.nn.Linear(24, 20).double()
    shared.load_state_dict(alone.state_dict())
    shared = torch.nn.parallel.DistributedDataParallel(shared)
    for network, rows in ((alone, slice(None)), (shared, slice(rank, None, size))):
        optimizer = kind(network.parameters(), **options)
        for _ in range(8):
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(network(x[rows].double()), y[rows]).backward()
            optimizer.step()
    for a, b in zip(alone.parameters(), shared.parameters()):
        assert (a - b).abs().max() < 1e-8, kind
        other = b.detach().clone()
        distributed.broadcast(other, 0)
        assert torch.equal(b.detach(), other), kind
if "--shards" in sys.argv:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    layer = torch.nn.Linear(24, 20)
    fully_shard(layer, mesh=init_device_mesh("cpu", (size,)))
    for kind in (SketchedSOAP, AdaFFD):
        try:
            kind(layer.parameters())
        except TypeError as error:
            assert str(error) == "parameters must be whole tensors, got a DTensor of shape (20, 24)", error
        else:
            raise AssertionError("shards were taken")
distributed.barrier()
distributed.destroy_process_group()
os._exit(0)  # a thread of gloo that wants the interpreter's lock while that shuts down would abort the process
"""


def test_processes_stay_equal_and_shards_are_refused(tmp_path, amount):
    """DistributedDataParallel has the steps of one process with all rows; FSDP2's shards are named."""
    if not (torch.distributed.is_available() and torch.distributed.is_gloo_available()):
        pytest.skip("torch was built without gloo")
    size = amount(1, 2)
    shards = ["--shards"] if VERSION >= (2, 6) else []
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(rank), str(size), str(tmp_path), *shards],
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors


def test_a_parameter_of_another_dtype_is_refused_before_any_moves():
    first, second = (torch.nn.Parameter(torch.full((20, 30), 0.5)) for _ in "ab")
    optimizer = SketchedSOAP([first, second], rank=4)
    for p in (first, second):
        p.grad = torch.ones_like(p)
    optimizer.step()
    before = first.detach().clone()
    second.data = second.data.double()
    second.grad = torch.ones_like(second)
    with pytest.raises(RuntimeError, match=r"state of a parameter is torch.float32, .* torch.float64"):
        optimizer.step()
    assert torch.equal(first, before) and optimizer.state[first]["step"] == optimizer.state[second]["step"] == 1


@KINDS
def test_whole_numbers_as_options_are_floats_or_refused(kind):
    _, optimizer = stepped(kind, eps=10**30)
    assert optimizer.param_groups[0]["eps"] == 1e30
    p, optimizer = stepped(kind)
    for name in ("lr", "eps", "delta", "sketch_size", "rank", "every"):
        state = copy.deepcopy(optimizer.state_dict())
        if name not in state["param_groups"][0]:
            continue
        state["param_groups"][0][name] = 10**30
        if name in ("sketch_size", "rank", "every"):
            with pytest.raises(ValueError, match=f"{name} must be below"):
                optimizer.load_state_dict(state)
        else:
            optimizer.load_state_dict(state)
            optimizer.step()
            assert optimizer.param_groups[0][name] == 1e30
            p, optimizer = stepped(kind)
