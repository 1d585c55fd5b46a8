"""OmniReduce (SIGCOMM 2021): aggregators on hosts, each for a part of the blocks; zero blocks are not sent."""
