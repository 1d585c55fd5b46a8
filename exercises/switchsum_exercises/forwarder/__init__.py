"""Exercise 1: a switch that only forwards."""
