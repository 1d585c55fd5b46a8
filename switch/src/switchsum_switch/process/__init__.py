"""What a process does with its machine and its user, whatever frames it moves.

- `system`: what kernels ask of the operating system: the time, sleep, bells, many messages with one call.
- `patience`: when a waiting worker or switch yields its core, and when it sleeps.
- `logs`: logs of all processes of a job (`SWITCHSUM_DEBUG`).
- `runtime_directory`: Unix sockets that only their user reaches, and where they lie.
- `trace`: what a process did when; `trace_files`: where traces are put, and how one is made of them.
"""
