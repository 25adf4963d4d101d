"""The benchmark behind `redrive bench`: workloads W1 to W10 as far as they exist, each beside its reference in one run.

Machines are shared and noisy, so a figure is a ratio of two measurements taken in turn, the median of several, with the
spread printed. No figure counts if the run lost or doubled a message; every drain checks that.
"""
