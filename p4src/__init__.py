"""The P4 program and its compiled builds."""
