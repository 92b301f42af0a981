"""Recorded tasks as tests, which run again and report each drift."""

from treadle.replay.drift import Drift
from treadle.replay.recording import Recording, load, record, save
from treadle.replay.task import ReplayReport, assert_replays, replay

__all__ = ["Drift", "Recording", "ReplayReport", "assert_replays", "load", "record", "replay", "save"]
