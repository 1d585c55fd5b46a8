"""The launcher, `switchsum run`: it starts a switch, a controller and workers on one machine, and ends them together.

Where to begin: `options.py` (the options of a job, and which kind of network has which), `local_job.py`
(one job from start to end), `wires.py` (namespaces and veth pairs), `tree.py` (several switches).
"""
