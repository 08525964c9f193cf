"""Kernels on devices: kept, planned, run and checked; and attend, which does all of it."""
