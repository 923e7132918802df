"""Arrays, losses, random numbers and threads, on which all other subpackages are built."""
