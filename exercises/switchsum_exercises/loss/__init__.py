"""Exercise 3: frames are lost, and repeated."""
