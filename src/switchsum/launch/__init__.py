"""The launcher, `switchsum run`: it starts a switch, a controller and workers on one machine, and ends them together.

Where to begin: `session.py` (one job from start to end), `children.py` (processes), `wires.py` (namespaces and veth
pairs), `bmv2.py` (BMv2 in the place of the embedded switch).
"""
