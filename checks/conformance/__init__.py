"""The tests in STF that p4c has, on our engines and on BMv2: `python -m checks.conformance P4C`, P4C a clone of it."""
