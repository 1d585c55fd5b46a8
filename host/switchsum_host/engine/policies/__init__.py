"""What a worker decides where the network is slow or loses frames: functions of numbers, without slots or frames.

Each module has one record of what it knows, and the functions that change it and read it:

* `round_trips`: how long a round takes on a path, whoever was late, and whether frames wait in a queue.
* `timer`: after what silence something is repeated (RFC 6298).
* `losses`: which frames later results show to be lost (RFC 8985, RFC 9002).
* `window`: how many contributions may be in flight (RFC 5681, RFC 8257, RFC 9406).

`switchsum_host.engine.recovery` and `switchsum_host.engine.congestion` ask them about each slot and send what they say.
docs/recovery.md has the equations, and for each constant a network that is slower without it.
"""
