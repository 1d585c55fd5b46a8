"""What each constant of the worker's recovery is for: which rough networks do not hold their bounds without it.

`python -m checks.constants` gives each constant another value, one at a time, simulates the fixed networks of
`checks.rough` in virtual time, and keeps what falls in results.json.  docs/recovery.md has the table.

- `sources`: finds the constants, and has a module imported with one of them changed.
- `neutral`: the values that switch each constant off.
- `trying`: simulates cells in a process with a changed constant: `python -m checks.constants.trying`.
- `page`: the table.
"""
