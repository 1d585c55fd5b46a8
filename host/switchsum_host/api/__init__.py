"""What callers have: the communicator, its collectives, and the membership of a job.

| file | what it holds |
|---|---|
| `communicator.py` | `Communicator`: the collectives that users call |
| `operation_queue.py` | operations under way: begun and brought to their end by one thread at a time; handles |
| `driver.py` | what a communicator asks of the driver below it |
| `collectives.py` | each collective as an operation of the engine, and how its result comes back |
| `parts.py` | collectives in which ranks have parts of their own: reduce, broadcast, allgather |
| `ragged.py` | gathering of parts that differ in length |
| `steps.py` | collectives of several steps, in the background |
| `sparse.py` | sparse sums, as callers have them |
| `ways.py`, `supports.py` | the way of a sparse sum: the choice; what ranks know of each other's rows; their union |
| `bitmap.py`, `places.py`, `owners.py` | rows as bits; as coded places; who has which |
| `eights.py` | what a processor does with eight places at once |
| `expected.py` | what goes along with the next first step of a sparse sum, since the last one was such |
| `dense.py` | sums of all rows that begin at once, since the last ones were such |
| `pairs.py` | sums of few rows, which ranks add themselves |
| `scaled.py` | sums of few floats whose exponents all ranks know |
| `quorum.py`, `missed.py` | sums that go on without ranks that are late: who takes part; what the late ones get |
| `each.py`, `rough.py` | sums with an exponent for each value; sums of a byte a value |
| `record.py` | what ranks must have alike in one call: one structure, one text, one digest |
| `join.py` | `Membership`: join, heartbeats, leave |
| `awaiting.py` | words for ranks that are waited for, and for calls that differ |
| `interrupts.py` | Ctrl-C waits for the end of what is driven |
| `report.py`, `statistics.py` | what a worker says of itself |
"""
