"""Files of models that were saved with drift="restart", which was removed: they load as learners that never restart.

What is said in its place works: decay="auto" follows a change, and fs.DriftMonitor reports one.
"""

from pathlib import Path

import numpy as np
import pytest

import fastsketch as fs
from fastsketch.data import read_header

# A model of three classes after 4,032 rows, a restart, and a warning at which others had begun to learn. Its notes
# have what it said then.
FILE = Path(__file__).parents[1] / "data" / "earlier" / "online-drift-restarted.fsk"


def loaded():
    with pytest.warns(UserWarning, match=r"drift='restart', which has been removed: .* decay='auto'"):
        return fs.load(FILE)


def stream(n, n_truths):
    """Draw rows and labels whose coefficients are drawn again at regular intervals, n_truths times in all."""
    rng = np.random.default_rng(0)
    rows, truths = rng.standard_normal((n, 5)), rng.standard_normal((n_truths, 5))
    scores = (rows * np.repeat(truths, n // n_truths, axis=0)).sum(axis=1)
    return rows, np.where(scores > 0, "b", "a")


def test_a_file_of_a_model_that_had_restarted_says_what_it_said():
    assert read_header(FILE)["parameters"]["drift"] == "restart"
    model = loaded()
    said = model.notes["said"]
    rows = np.random.default_rng(0).standard_normal((6000, 4))
    assert np.allclose(model.coef, said["coef"], rtol=1e-12)
    assert np.allclose(model.decision_function(rows[:5]), said["scores"], rtol=1e-9)
    known = {name: value for name, value in said["progress"].items() if value is not None}
    assert {name: model.progress[name] for name in known} == pytest.approx(known, rel=1e-12)


def test_such_a_model_goes_on_and_is_saved_as_a_plain_one():
    model = loaded()
    rows, labels = stream(200, 1)
    rows = rows[:, :4]
    again = fs.from_bytes(model.to_bytes())  # without a warning
    assert again.parameters == fs.SketchedNewton(3).parameters
    again.update(rows, labels)
    assert again.to_bytes() == model.update(rows, labels).to_bytes()
    assert model.n_rows == 4032 + len(rows)


@pytest.mark.parametrize("drift", ["begin", 1, ["restart"]])
def test_a_file_of_another_drift_is_refused(drift):
    state, arrays = fs.SketchedNewton(3)._state()
    parameters = {**fs.SketchedNewton(3).parameters, "drift": drift}
    with pytest.raises(ValueError, match="drift must be None or 'restart'"):
        fs.SketchedNewton._built(parameters, {}, state, arrays, trusted=False)


def test_drift_is_no_parameter():
    with pytest.raises(TypeError, match="drift"):
        fs.SketchedNewton(drift="restart")


@pytest.mark.parametrize("kind", [fs.SketchedNewton, fs.AdaptiveSubgradient])
def test_decay_auto_follows_a_stream_that_changes(kind):
    rows, labels = stream(4000, 40)
    accuracy = [kind(5, decay=decay).update(rows, labels).progress["accuracy"] for decay in (1.0, "auto")]
    assert accuracy[1] > accuracy[0] + 0.05


def test_a_monitor_of_errors_reports_that_they_have_risen():
    rows, labels = stream(20_000, 2)
    model = fs.SketchedNewton(5).update(rows[:1000], labels[:1000])
    errors = (model.predict(rows) != labels).astype(float)[:, None]
    alarms = fs.DriftMonitor().update(errors).alarms
    assert len(alarms) == 1 and 10_000 < alarms[0].row <= 11_000
