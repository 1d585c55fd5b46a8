"""What a worker decides where the network is slow or loses frames: functions of numbers, without slots or frames.

Each file has a record of what it knows, and the functions that change it and read it.  `engine/recovery.py` and
`engine/congestion.py` ask them about each slot, and send what they say.  docs/recovery.md has the equations.

| file | what it decides |
|---|---|
| `round_trips.py` | how long a round takes on a path, whoever was late, and whether frames wait in a queue |
| `timer.py` | after what silence something is repeated (RFC 6298) |
| `silence.py` | when a tree is silent, though results come over others |
| `flight.py` | whether all that was in flight is lost, after a time-out (RFC 5682, RFC 8985) |
| `losses.py` | which frames later results show to be lost (RFC 8985, RFC 9002) |
| `delivery.py` | how fast results come, and whether more is sent than the path can carry |
| `window.py` | how many contributions may be in flight (RFC 5681, RFC 8257, RFC 9406) |
| `pacing.py` | when they may leave, where bursts were lost or marked (RFC 9002) |
"""
