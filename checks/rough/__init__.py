"""Sums on rough networks, drawn at random, in virtual time: real workers and switches, and a bound of what is possible.

`python -m checks.rough --seed 7 --cells 300` draws networks, simulates a sum on each, and says how near it came to the
bound.  `checks.rough.short` has fixed ones, which are a test.

- `bound`: the shortest time that links, window and troubles allow; a pure function.
- `cells`: what a cell is: a network, its jobs, and what goes wrong.
- `drawing`: draws cells from a seed.
- `running`: simulates one, within limits of virtual time, events and memory.
- `report`: lines and tables.
"""
