"""Exercise 5: floats are added as integers with a common exponent."""
