"""Text into arrays."""
