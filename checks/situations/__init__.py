"""Thirty situations of jobs, each with the sentence that must come first and the parts that must not be blamed."""
