"""Covariance of standardised columns, and anomaly scores with conformal thresholds, for ``fastsketch.sklearn``."""
