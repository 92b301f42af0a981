"""Recorded tasks as tests: run again, compared, and told what drifted."""

from treadle.testing.replay.recording import Recording, load, record, save
from treadle.testing.replay.task import ReplayReport, assert_replays, replay

__all__ = ["Recording", "ReplayReport", "assert_replays", "load", "record", "replay", "save"]
