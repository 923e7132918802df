"""Foundations of all subpackages: array validation, losses, random numbers and thread limits."""
