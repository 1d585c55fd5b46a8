"""The table of a slot's rules changed entry by entry, to see whether its tests notice."""
