"""
A recommendation explained
==========================

**Why is this recommended to me?** The score of an item is a sum over what a customer has: ``explain`` takes it
apart. Here 4,000 invented customers of a shop follow one to three of six hobbies, buy things for these, and some
batteries and tape.
"""

import matplotlib.pyplot as plt
import numpy as np

import fastsketch as fs

hobbies = {
    "coffee": ["coffee beans", "paper filters", "milk frother", "hand grinder", "thermos"],
    "garden": ["tomato seeds", "plant pots", "watering can", "compost", "secateurs"],
    "hiking": ["trail shoes", "rain jacket", "head lamp", "trail map", "thermos"],
    "baking": ["rye flour", "yeast", "baking stone", "dough scraper", "kitchen scales"],
    "cycling": ["inner tube", "chain oil", "bike lights", "helmet", "rain jacket"],
    "painting": ["oil paints", "canvas", "brushes", "easel", "turpentine"],
}
rng = np.random.default_rng(0)


def basket():
    """What one customer has bought."""
    names = rng.choice(list(hobbies), rng.integers(1, 4), replace=False)
    items = [item for name in names for item in hobbies[name] if rng.random() < 0.5]
    return sorted({*items, *(item for item in ("batteries", "tape") if rng.random() < 0.4)})


# %%
# A model of items, and a new customer
# ------------------------------------
#
# The thermos belongs to two of the hobbies, which nobody has told the model.

model = fs.SketchedEASE(16).update({customer: basket() for customer in range(4_000)})
mine = {"me": ["coffee beans", "hand grinder", "trail shoes", "head lamp", "batteries"]}
best = model.recommend(mine, 3)
for item, score in zip(best.items[0], best.scores[0], strict=True):
    why = model.explain(mine, item)
    parts = ", ".join(f"{name} {value:+.2f}" for name, value in zip(why.items, why.contributions, strict=True))
    print(f"{item}: {score:.2f} = {parts}")

# %%
# The picture
# -----------

figure, axes = plt.subplots(1, 3, figsize=(7, 3.4), sharex=True, sharey=True)
for ax, item in zip(axes, best.items[0], strict=True):
    why = model.explain(mine, item)
    share = dict(zip(why.items, why.contributions, strict=True))
    values = [share[name] for name in mine["me"]]
    ax.barh(mine["me"], values, color=["#0072B2" if value > 0 else "#D55E00" for value in values])
    ax.axvline(0, color="#999999", linewidth=1)
    ax.set_title(item)
axes[0].invert_yaxis()
axes[0].set_ylabel("in the basket")
axes[1].set_xlabel("contribution to the score")
figure.suptitle("Three recommendations, and what they are because of")
plt.show()

# %%
# **How sure is this?** The parts add up to the score, exactly: nothing is approximated afterwards. They say what
# the model did, not what the customer thinks. Whether its lists are better than the most popular items is another
# question, which :doc:`evaluation </jobs/recommending>` answers on your own events.
#
# **Next:** :doc:`recommending </jobs/recommending>`.
