"""Exercise 4: blocks of zeros are skipped."""
