"""A program before it runs: BMv2's JSON, the typed model, the intermediate representation and its passes."""
