"""The commands of the laboratory, which the command line of switchsum finds by their entry points."""
