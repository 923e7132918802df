"""
A shop whose basket changes
===========================

**What if every good sells as before, and customers are not the same any more?** Tables of sales show nothing when tea
and lemons are suddenly bought together. A monitor compares the latest days with all others, by means and variances
of columns and by how columns go together, and says which of them carry the change.

Here are 300 customers a day and a dozen goods. From day 100 on half of them buy lemons if they buy tea, and only then:
each of the two sells as often as before.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsketch as fs

rng = np.random.default_rng(0)
goods = ("bread", "milk", "butter", "eggs", "tea", "lemons", "rice", "soap", "oil", "salt", "cheese", "apples")
shares = np.array([0.5, 0.45, 0.3, 0.3, 0.3, 0.3, 0.2, 0.1, 0.15, 0.1, 0.25, 0.35])


def day_of(number):
    """300 baskets: ones where a good is in it."""
    bought = rng.random((300, 12)) < shares
    if number >= 100:
        follows = rng.random(300) < 0.5
        bought[follows, 5] = bought[follows, 4]
    return bought.astype(float)


# %%
# One pass
# --------
#
# The first 40 days are the reference. The chance of a false alarm within n days is at most n / 10,000.

monitor = fs.DriftMonitor(every=300, reference=40, run_length=10_000)
days, evidence, sold = np.arange(120), [], []
for number in days:
    rows = day_of(number)
    monitor.update([dict(zip(goods, row, strict=True)) for row in rows.tolist()])
    sold.append([rows[:, 4].mean(), rows[:, 5].mean(), (rows[:, 4] * rows[:, 5]).mean()])
    evidence.append(1.0 if monitor.alarms else monitor.evidence if monitor.armed else np.nan)
    if monitor.alarms:
        break

# %%
# The alarm
# ---------

alarm = monitor.alarms[0]
print(f"said after day {alarm.row // 300 - 1}, by {alarm.score}: since day {alarm.begin // 300}")
for column, what, before, after in alarm.columns:
    print(f"{column}: {what}, variance {before:.2f} -> {after:.2f}")

# %%
# The picture
# -----------

days = days[: len(sold)]
figure, (above, below) = plt.subplots(2, sharex=True, height_ratios=(2, 3))
for values, name, colour in zip(
    np.transpose(sold), ("tea", "lemons", "both"), ("#999999", "#666666", "#0072B2"), strict=True
):
    above.plot(days, 100 * values, color=colour, linewidth=1)
    above.text(1, {"tea": 38, "lemons": 21, "both": 3}[name], name, color=colour)
above.set(ylabel="% of baskets", ylim=(0, 45))
above.set_title("Each sells as before, and the alarm comes within days")
below.semilogy(days, evidence, color="#0072B2")
below.axhline(1, color="#D55E00", linewidth=1)
below.text(2, 0.3, "alarm", color="#D55E00")
below.text(2, 2e-4, "reference, 40 days", color="#555555")
below.axvline(100, color="#999999", linewidth=1, linestyle=":")
below.text(99, 1e-1, "bought together", color="#555555", ha="right")
below.text(99, 2.0, ", ".join(str(item.column) for item in alarm.columns), color="#0072B2", ha="right")
below.set(xlabel="days", ylabel="evidence", xlim=(0, days[-1] + 1), ylim=(5e-5, 8))
plt.show()

# %%
# **How sure is this?** If days are exchangeable while nothing changes, an alarm within n days has a probability of n /
# 10,000 at most, whatever customers buy; that the next days are like the last ones nobody certifies.
#
# **Next:** :doc:`alarms, windows and comparisons </jobs/streams>`.
