"""ATP (NSDI 2021)."""
