"""Arrays, losses, random numbers and threads: what all other rooms are made of."""
