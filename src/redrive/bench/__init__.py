"""The benchmark behind `redrive bench`: workloads, each beside its reference in one run.

Machines are noisy, so a figure is a ratio of two measurements taken in turn, the median of several, with the
spread. No figure counts if the run lost or doubled a message; every drain checks that.
"""
