"""A program's objects by the names of its P4 source, and values as a writer of P4 has them."""
