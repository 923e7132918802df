"""Arrays, losses, random numbers and threads: what everything else is made of, without state of its own."""
