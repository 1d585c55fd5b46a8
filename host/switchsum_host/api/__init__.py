"""What callers have: the communicator, its collectives, and the membership of a job.

| file | what it holds |
|---|---|
| `communicator.py` | `Communicator`: the collectives that users call |
| `operation_queue.py` | operations under way: begun and brought to their end by one thread at a time; handles |
| `collectives.py` | each collective as an operation of the engine, and how its result comes back |
| `parts.py` | collectives in which ranks have parts of their own: reduce, broadcast, allgather |
| `steps.py` | collectives of several steps, in the background |
| `sparse.py`, `bitmap.py`, `owners.py` | sparse sums: the union of all ranks' blocks first, then the values |
| `quorum.py`, `missed.py` | sums that go on without ranks that are late: who takes part; what the late ones get |
| `each.py`, `rough.py` | sums with an exponent for each value; sums of a byte a value |
| `record.py` | what ranks must have alike in one call: one structure, one text, one digest |
| `join.py` | `Membership`: join, heartbeats, leave |
| `awaiting.py` | words for ranks that are waited for, and for calls that differ |
| `interrupts.py` | Ctrl-C waits for the end of what is driven |
| `report.py`, `statistics.py` | what a worker says of itself |
"""
