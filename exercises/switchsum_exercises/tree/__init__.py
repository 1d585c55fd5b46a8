"""Exercise 6: the leaf of a tree of switches."""
