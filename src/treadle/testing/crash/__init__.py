"""Crashes as inputs of tests: named fault points, and processes that stop at one."""

from treadle.testing.crash.fault_points import Crash, CrashingStore, name_of, names_of, places_in

__all__ = ["Crash", "CrashingStore", "name_of", "names_of", "places_in"]
