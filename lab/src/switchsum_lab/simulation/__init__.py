"""Networks in virtual time: any P4 program, the real worker engine, any rate, any number of workers, on one core.

Nothing here reads a clock.  One compiled event loop (`loop.py`) moves whole frames between switches, which run the
native code of their P4 programs, and hosts, which run the native code of the worker engine or of a peer (a ring of
hosts).  Between them are links with a rate, a delay, a queue, losses and failures.  Time is a whole number of
picoseconds and chance is drawn by counting, so that the same seed gives the same run to the last bit.

| file | what it holds |
|---|---|
| `records.py` | what the loop knows, as records that kernels and Python share |
| `events.py`, `frames.py`, `cables.py` | kernels: the queue of events, memory of frames, what a link does to a frame |
| `switching.py` | kernels: ingress, queues, egress |
| `loop.py` | the event loop |
| `conditions.py` | what a link or a host is like: rates, delays, queues, losses, costs |
| `world.py`, `switches.py`, `log.py`, `arena.py` | build those records in Python, let time pass, make room |
| `network.py` | a network for P4 writers: hosts, switches with any program, and links, by names |
| `python_switch.py` | a switch that is a Python object |
| `traffic.py` | a host that sends one frame again and again, and counts what comes |
| `streams.py` | a bulk stream such as TCP's |
| `workers.py`, `jobs.py` | the real engine as a host; a job over the trees that the planner finds |
| `placement.py`, `rails.py` | where a job's ranks are; a worker with links to several switches |
| `controller.py` | the real controller's reconciler and upkeep, without gRPC and threads |
| `peers.py`, `peer_kernels.py` | collectives of hosts alone, such as a ring, and their formulas |
| `scenario.py`, `outputs.py` | a question to the simulator and its answer; captures, traces and plots |
| `ranks.py` | the user's own processes in virtual time |
| `sums.py` | how far a sum is from the right one |

A figure from here is always called simulated, in every output and on every page.
"""
