"""Thin drivers between the worker engine and a link.

| file | what it holds |
|---|---|
| `base.py` | the seam: whole frames in fixed rows, handed over in batches |
| `names.py`, `worker_link.py` | a link by name (`shm:`, `udp:`, `packet:`, `scapy:`); what `connect` is given |
| `native.py`, `callbacks.py` | links whose functions are compiled, or Python |
| `shm.py`, `packet.py` | shared memory; AF_PACKET |
| `sockets.py`, `udp.py` | UDP without privileges |
| `scapy_layer.py`, `scapy_transport.py` | the header as Scapy layers, and a link that shows each frame |
| `several.py`, `watching.py` | several links as one; one that is dead is left out |
| `virtual.py` | a rank in virtual time |
| `warm.py` | compiles before any frame is on its way |
"""
