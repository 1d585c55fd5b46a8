"""SwitchML (NSDI 2021)."""
