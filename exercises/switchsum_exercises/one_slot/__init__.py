"""Exercise 2: one slot adds, and gives everybody the sum."""
