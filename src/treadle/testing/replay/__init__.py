"""Recorded tasks as tests: they are run again and compared, and each drift is reported."""

from treadle.testing.replay.drift import Drift
from treadle.testing.replay.recording import Recording, load, record, save
from treadle.testing.replay.task import ReplayReport, assert_replays, replay

__all__ = ["Drift", "Recording", "ReplayReport", "assert_replays", "load", "record", "replay", "save"]
