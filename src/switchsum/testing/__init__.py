"""Kit for tests of programs that use switchsum."""
