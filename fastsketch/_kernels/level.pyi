chosen: str | None
