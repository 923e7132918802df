"""Kernels of the item recommender: projections of users' rows, item scores and random walks."""
