"""The table of losses against numerical derivatives, and against the formulas of the compiled loops."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest

from fastsketch._core.losses import (
    LOSSES,
    ONLINE_LOSSES,
    LossName,
    OnlineLossName,
    as_loss_parameter,
    as_targets,
    expected,
)
from fastsketch._kernels import losses as numbers
from fastsketch._kernels.losses import value_slope_curvature

SCORES = (0.0, 1e-8, -1e-8, 0.2, -0.3, 0.5, -0.5, 1.0, -1.0, 1.5, -2.0, 3.0, -7.0, 30.0, -40.0)
HUGE = (1e3, -1e3, 1e8, -1e8, 1e150, -1e150)
TARGETS = {"label": (-1.0, 1.0), "count": (0.0, 1.0, 5.0), "real": (0.0, 0.3, -1.0, 1.0, 2.5, -40.0)}
# Of the losses with a parameter: small, the default, and large.
PARAMETERS = {"huber": (0.1, 1.0, 5.0), "quantile": (0.1, 0.5, 0.9), "epsilon_insensitive": (0.05, 0.1, 2.0)}


def kinks(name, y, p):
    """Scores at which the slope or the curvature jumps."""
    return {
        "squared_hinge": (y,),
        "huber": (y - p, y + p),
        "absolute": (y,),
        "hinge": (y,),
        "quantile": (y,),
        "epsilon_insensitive": (y - p, y + p),
    }.get(name, ())


def grid(name, huge=False):
    """(z, y, p) of one loss, kinks and the target itself among the scores."""
    for p in PARAMETERS.get(name, (as_loss_parameter(name, None),)):
        for y in TARGETS[LOSSES[name].targets]:
            for z in (*SCORES, y, *kinks(name, y, p), *(HUGE if huge else ())):
                yield z, y, p


def table(name, z, y, p):
    """(value, slope, curvature) of the table at one place."""
    about, at, target = LOSSES[name], np.array([z]), np.array([y])
    with np.errstate(over="ignore", invalid="ignore"):
        return tuple(float(formula(at, target, p)[0]) for formula in (about.value, about.slope, about.curvature))


def test_numbers_are_unique_and_those_of_the_compiled_file():
    """Every entry has the number of its name in losses.pxd, and no number of losses.pxd is left out."""
    text = (Path(__file__).parents[1] / "fastsketch" / "_kernels" / "losses.pxd").read_text(encoding="utf-8")
    declared = {name: int(n) for name, n in re.findall(r"^    ([A-Z_]+) = (\d+)$", text.split("NO_PENALTY")[0], re.M)}
    assert {name.upper(): about.number for name, about in LOSSES.items()} == declared
    assert len(set(declared.values())) == len(declared) == len(LOSSES)
    for name, number in declared.items():
        assert getattr(numbers, name) == number
    # losses with kinks come after those with a curvature
    assert max(about.number for about in LOSSES.values() if about.smooth) < min(
        about.number for about in LOSSES.values() if not about.smooth
    )


def test_names_are_those_of_the_types():
    assert tuple(LOSSES) == LossName.__args__
    assert set(ONLINE_LOSSES) == set(OnlineLossName.__args__)


@pytest.mark.parametrize("name", LOSSES)
def test_slope_and_curvature_are_derivatives(name):
    """Central differences of the value and of the slope, away from kinks."""
    for z, y, p in grid(name):
        if min((abs(z - kink) for kink in kinks(name, y, p)), default=1.0) < 1e-3 or (name == "poisson" and z > 25):
            continue
        h = 1e-5 * max(1.0, abs(z))
        (above, slope_above, _), (below, slope_below, _) = (table(name, z + step, y, p) for step in (h, -h))
        value, slope, curvature = table(name, z, y, p)
        # rounding of the two values, and the third derivative
        allowed = 1e-15 * abs(value) / h + 1e-8 * max(1.0, abs(slope))
        assert (above - below) / (2 * h) == pytest.approx(slope, abs=allowed), (z, y, p)
        allowed = 1e-15 * abs(slope) / h + 1e-8 * max(1.0, abs(curvature))
        assert (slope_above - slope_below) / (2 * h) == pytest.approx(curvature, abs=allowed), (z, y, p)


@pytest.mark.parametrize("name", [name for name in LOSSES if LOSSES[name].targets != "count"])
def test_losses_are_convex_and_least_at_the_target(name):
    """Values are not negative; at a kink the slope lies between those of both sides."""
    for z, y, p in grid(name, huge=True):
        value, slope, curvature = table(name, z, y, p)
        assert value >= 0 and curvature >= 0
        if abs(z) < 100:
            below, above = (table(name, z + step, y, p)[1] for step in (-1e-6, 1e-6))
            assert below - 1e-12 <= slope <= above + 1e-12, (z, y, p)
    if LOSSES[name].lipschitz is not None:
        assert max(table(name, *place)[2] for place in grid(name)) == pytest.approx(LOSSES[name].lipschitz, rel=1e-9)


@pytest.mark.parametrize("name", LOSSES)
def test_what_compiled_loops_compute(name):
    """Kinks and huge scores included."""
    for z, y, p in grid(name, huge=True):
        found, wanted = value_slope_curvature(LOSSES[name].number, p, z, y), table(name, z, y, p)
        assert found[:2] == pytest.approx(wanted[:2], rel=1e-13, abs=1e-300), (z, y, p)
        # logistic: s (1 - s) for s near 1 has the rounding of s
        allowed = np.finfo(float).eps if name == "logistic" else 1e-300
        assert found[2] == pytest.approx(wanted[2], rel=1e-13, abs=allowed), (z, y, p)


def test_formulas_take_arrays():
    rng = np.random.default_rng(0)
    for name, about in LOSSES.items():
        z = rng.standard_normal(50)
        y = rng.choice(TARGETS[about.targets], 50)
        p = as_loss_parameter(name, None)
        for k, formula in enumerate((about.value, about.slope, about.curvature)):
            found = formula(z, y, p)
            assert found.dtype == np.float64 and found.shape == (50,)
            assert found.tolist() == pytest.approx([table(name, a, b, p)[k] for a, b in zip(z, y, strict=True)])


def test_labels_and_counts():
    labels = [name for name, about in LOSSES.items() if about.targets == "label"]
    assert labels == ["logistic", "squared_hinge", "hinge"]
    for name, dtype in itertools.product(labels, (np.float32, np.float64)):
        for given in ([0, 1, 1], [-1, 1, 1]):
            found = as_targets(np.array(given, dtype), name)
            assert found.dtype == dtype and found.tolist() == [-1, 1, 1]
        for given, listed in (([1, 2, 1], "2"), ([0, -1, 1], "-1, 0, 1"), ([0.5, 1, 1], "0.5")):
            with pytest.raises(ValueError, match=rf"targets must hold labels .* for loss='{name}', got {listed}$"):
                as_targets(np.array(given, dtype), name)
    assert as_targets(np.array([1.0, 1.0]), "logistic").tolist() == [1, 1]
    assert as_targets(np.array([0.0]), "logistic").tolist() == [-1]
    assert as_targets(np.array([-2.0, 7.0]), "square").tolist() == [-2, 7]
    assert as_targets(np.array([0.0, 7.0]), "poisson").tolist() == [0, 7]
    with pytest.raises(ValueError, match=r"values must hold nonnegative counts for loss='poisson', got -1$"):
        as_targets(np.array([-1.0, 2.0]), "poisson", "values")


def test_what_to_expect_of_the_target():
    z = np.array([-800.0, -1.0, 0.0, 2.0])
    assert np.allclose(expected("logistic", z), [0, 1 / (1 + np.e), 0.5, 1 / (1 + np.exp(-2.0))], rtol=1e-14)
    assert np.allclose(expected("poisson", z), np.exp(z), rtol=1e-14)
    assert expected("square", z) is z


def test_names_and_parameters():
    assert [as_loss_parameter(name, None) for name in ("huber", "quantile", "square")] == [1.0, 0.5, 0.0]
    assert as_loss_parameter("huber", 3) == 3.0
    for name, value, message in (
        ("square", 1.0, "takes no loss_parameter"),
        ("huber", 0.0, r"must lie in \(0,"),
        ("quantile", 1.0, r"must lie in \(0, 1\)"),
    ):
        with pytest.raises(ValueError, match=message):
            as_loss_parameter(name, value)
