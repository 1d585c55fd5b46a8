"""The worker's side of a job: from a caller's array to frames on a link, and back.

| folder or file | what it holds |
|---|---|
| `connect.py` | `connect`: from an address and a rank to a communicator |
| `api/` | what callers have: the communicator and its collectives, and membership of a job |
| `engine/` | the worker's half of the slot machine: arrays and frames in, frames and events out |
| `links/` | between the engine and the switch: shared memory, UDP, AF_PACKET, Scapy, virtual time |
| `compress/` | ways of sending less than a whole gradient |

The engine opens no socket and reads no clock.  Links know nothing of collectives.
"""
