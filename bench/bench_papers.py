"""Settings of the papers' learners, where the defaults of the library are others."""

# Rows as they come, no intercept, nothing read out of the scores.
PLAIN = {"scale": None, "fit_intercept": False, "calibrate": False, "blend": False}
# The RFD paper's: (z - y)^2, scores cut at 1.
NEWTON = {"loss": "square", "loss_scale": 2.0, "constraint": "current", **PLAIN}
# Its learner without a parameter.
RFD0 = {**NEWTON, "alpha0": 0.0}
