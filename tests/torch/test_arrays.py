"""Tensors and DLPack objects where arrays are accepted."""

import numpy as np
import pytest

import fastsketch as fs
from fastsketch._core.validation import as_array, as_numbers, as_rows, as_vector, as_weights

torch = pytest.importorskip("torch")

ROWS = torch.randn(200, 20, generator=torch.Generator().manual_seed(0))


class Exported:
    """An object that has the DLPack protocol and no other."""

    def __init__(self, array, error=None):
        self.array, self.error = array, error

    def __dlpack__(self, **options):
        if self.error is not None:
            raise self.error
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("change", [torch.Tensor.bfloat16, torch.Tensor.half, lambda x: x.clone().requires_grad_()])
def test_tensors_are_detached_and_bfloat16_is_converted(change):
    given = change(ROWS)
    plain = given.detach().float().numpy()
    assert np.array_equal(as_rows(given), plain)
    assert np.array_equal(as_array(given, "values"), plain)
    assert np.array_equal(as_vector(given[0], 20), plain[0])
    assert np.array_equal(as_numbers(given[:, 0], 200), plain[:, 0])
    assert np.array_equal(as_weights(given[:, 0].abs(), 200), np.abs(plain[:, 0]))
    ours, theirs = fs.FrequentDirections(4).update(given), fs.FrequentDirections(4).update(plain)
    assert np.array_equal(ours.sketch(), theirs.sketch())
    assert given.requires_grad == (change(ROWS).requires_grad)


def test_estimators_take_tensors():
    pytest.importorskip("sklearn")
    from fastsketch.sklearn import SketchedPCA, SketchedRidge

    half = ROWS.bfloat16().requires_grad_()
    plain = half.detach().float().numpy()
    assert np.array_equal(SketchedPCA(3).fit(half).transform(half), SketchedPCA(3).fit(plain).transform(plain))
    y = (plain[:, 0] + 1).round()
    ours, theirs = SketchedRidge().fit(half, torch.from_numpy(y).bfloat16()), SketchedRidge().fit(plain, y)
    assert np.array_equal(ours.predict(half), theirs.predict(plain))
    with pytest.raises(ValueError, match="NaN"):
        SketchedPCA(3).fit(half * float("nan"))


def test_targets_labels_and_weights_may_be_tensors():
    pytest.importorskip("sklearn")
    from fastsketch.sklearn import SketchedNewtonClassifier, SketchedRidge, SketchedRidgeClassifier

    rows, labels = ROWS.numpy(), (ROWS[:, 0] > 0).long().numpy()
    given = torch.from_numpy(labels).bfloat16().requires_grad_()
    weights = torch.ones(200, requires_grad=True)
    for kind in (SketchedNewtonClassifier, SketchedRidge, SketchedRidgeClassifier):
        ours, theirs = kind().fit(rows, given, sample_weight=weights), kind().fit(rows, labels)
        assert np.array_equal(ours.predict(rows), theirs.predict(rows))
        assert ours.score(rows, given, weights) == theirs.score(rows, labels)
    ours, theirs = fs.SketchedNewton().update(rows, given), fs.SketchedNewton().update(rows, labels)
    assert np.array_equal(ours.predict(rows), theirs.predict(rows))


def test_objects_with_dlpack():
    assert np.array_equal(as_rows(Exported(ROWS.numpy())), ROWS.numpy())
    assert np.array_equal(np.vstack(list(fs.open_rows(Exported(ROWS.numpy())))), ROWS.numpy())
    with pytest.raises(ValueError, match=r"fastsketch\.torch\.FrequentDirections sketches tensors on their device"):
        as_rows(Exported(ROWS.numpy(), BufferError("on a device")))


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_tensors_that_are_no_arrays():
    pytest.importorskip("sklearn")
    from fastsketch.sklearn import SketchedNewtonClassifier, SketchedPCA, SketchedRidgeClassifier

    nested = [torch.nested.as_nested_tensor([ROWS, ROWS[:3]], layout=x) for x in (torch.jagged, torch.strided)]
    entry_points = [as_rows, fs.FrequentDirections(4).update, fs.open_rows, SketchedPCA(3).fit]
    entry_points += [lambda x: as_weights(x, 200), lambda x: fs.SketchedNewton().update(ROWS, x)]
    for kind in (SketchedNewtonClassifier, SketchedRidgeClassifier):
        fitted = kind().fit(ROWS, ROWS[:, 0] > 0)
        entry_points += [lambda x, kind=kind: kind().fit(ROWS, x), lambda x, fitted=fitted: fitted.score(ROWS, x)]
    for wrong in (ROWS.to_sparse(), ROWS.to_mkldnn(), ROWS.to("meta"), *nested):
        for convert in entry_points:
            with pytest.raises(TypeError, match="must be a dense tensor that holds numbers"):
                convert(wrong)
    with pytest.raises(TypeError):
        as_rows(ROWS + 1j)
    assert np.array_equal(as_rows(torch._neg_view(ROWS)), -ROWS.numpy())
    small = ROWS.to(torch.float8_e4m3fn)
    assert np.array_equal(as_rows(small), small.float().numpy())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_tensors_of_a_device_are_copied_with_a_warning():
    with pytest.warns(
        UserWarning, match=r"rows on cuda:0 were copied to the CPU: fastsketch\.torch\.FrequentDirections"
    ):
        assert np.array_equal(as_rows(ROWS.cuda()), ROWS.numpy())
