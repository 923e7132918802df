"""Arrays in, arrays out: the compiled loops. Nothing here keeps state or validates."""
