"""Foundation: what every part shares. Needs numpy, pydantic and the standard library only."""
