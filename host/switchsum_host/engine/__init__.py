"""The worker's half of the slot machine: arrays and frames in, frames and events out.

| file | what it holds |
|---|---|
| `engine.py` | `Engine`: what Python calls |
| `config.py`, `operation.py`, `dtypes.py` | what it is told: at its start, and for each collective |
| `state.py` | what it knows, as arrays that its kernels share with Python |
| `loop.py`, `link.py` | the one loop, and a link as it sees it |
| `receiving.py`, `sending.py` | a slot's two halves: what came from the switch, and what is contributed next |
| `rules.py` | the rules of a slot as one table |
| `recovery.py`, `failures.py` | what is sent again and when; words for what ends an operation |
| `congestion.py` | which contributions wait for the window, and in what order they go |
| `policies/` | what those two ask, in numbers: round trips, time-outs, losses, the window, pace |
| `header.py` | headers in place, and checksums |
| `kernels.py`, `integers.py`, `narrow.py`, `exact.py`, `each.py` | hot loops over one block of values, by format |
| `call_times.py` | when the latest collectives began and ended, for reports |
| `by_hand.py` | what Python calls beside the loop |
| `fetching.py` | what a frame needs is fetched before its turn, in virtual time |
"""
