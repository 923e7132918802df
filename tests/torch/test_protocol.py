"""What the optimizers take, and refuse, of torch: states of others, shards, compiled functions, many processes."""

import copy
import subprocess
import sys

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
