"""A program that runs: the interpreter, the switch around it, traces, and the pipeline that chooses an engine."""
