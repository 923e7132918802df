"""
The latest hours alone
======================

**A machine begins to shake: when does the model know it, and which sensors say so?** A sketch of all rows learns it
slowly, since every old hour counts as much as a new one. With ``decay`` one has to guess how fast to forget. A
window forgets whole hours: what it says is about the latest rows and no others.

Here are 40 sensors for 72 hours. From hour 40 on sensors 11 and 12 shake together.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsketch as fs

rng = np.random.default_rng(0)
names = [f"sensor {j}" for j in range(40)]
common = rng.standard_normal((3, 40))


def rows_of(hour):
    """240 rows: three movements of the whole machine, noise, and the new vibration."""
    rows = rng.standard_normal((240, 3)) @ common + rng.standard_normal((240, 40))
    rows[:, 11:13] += 8 * (hour >= 40) * rng.standard_normal((240, 1))
    return rows


# %%
# One pass
# --------
#
# After every hour each model is asked for the largest variance of its rows. The window has 6 hours.

model = fs.FrequentDirections(16, method="tfd", solver="gram")
window = fs.Window(model, blocks=6, every="1h")
fading = fs.FrequentDirections(16, method="tfd", solver="gram", decay=0.5 ** (1 / (24 * 240)))  # a day's half-life
everything = model.copy()
hours, truth, found = np.arange(72), [], {"window": [], "decay": [], "all": []}
days = {}
for hour in hours:
    rows = rows_of(hour)
    truth.append(np.linalg.eigvalsh(rows.T @ rows)[-1] / len(rows))
    window.update(rows, by=hour * 3600 + np.arange(240) * 15)
    for name, sketch in (("window", window.model), ("decay", fading.update(rows)), ("all", everything.update(rows))):
        top = sketch.spectrum()
        found[name].append(np.array([top.low[0], top.high[0]]) / sketch.total_weight)
    if hour in (38, 50):
        days[hour] = window.copy()

# %%
# What changed
# ------------
#
# Two windows, before and after, are compared. The interval is certain; the columns are those of its direction.

changed = fs.compare(days[38].model, days[50].model, n=1)
carriers = changed.columns(3, change=0)
print(f"variance along the direction: {changed.before[0]:.1f} before, {changed.after[0]:.1f} after")
print(f"the change is certainly within [{changed.low[0]:.1f}, {changed.high[0]:.1f}]")
print("carried by", ", ".join(f"{names[int(column)]} ({share:.0%})" for column, share in carriers))

# %%
# The picture
# -----------

figure, ax = plt.subplots()
ax.plot(hours, truth, ".", color="black", markersize=3)
for name, colour in (("window", "#0072B2"), ("decay", "#D55E00"), ("all", "#999999")):
    low, high = np.transpose(found[name])
    ax.fill_between(hours, low, high, color=colour, alpha=0.3, linewidth=0)
    ax.plot(hours, (low + high) / 2, color=colour)
ax.axvline(40, color="#999999", linewidth=1, linestyle=":")
ax.text(38.5, 118, "two sensors begin to shake", color="#555555", ha="right")
ax.text(42, 166, "window of 6 hours", color="#0072B2", ha="left")
ax.text(58, 84, "decay", color="#D55E00", ha="right")
ax.text(71, 48, "all rows", color="#777777", ha="right")
ax.text(30, 66, "single hours", ha="center")
ax.set(xlabel="hours", ylabel="largest variance", xlim=(0, 72), ylim=(0, 180))
ax.set_title("A window knows the new vibration within its length")
plt.show()

# %%
# **How sure is this?** The intervals hold for the rows that each model has: the window's are those of the latest
# 6 hours, on every stream. Dots are single hours, which scatter. That rows to come are like these nobody certifies;
# :doc:`streams that change </jobs/streams>` says how blocks tell a change from chance.
#
# **Next:** :doc:`windows and comparisons </jobs/streams>`, and :doc:`why intervals hold </how/certificate>`.
