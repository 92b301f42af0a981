"""The engine: creates, drives, controls and inspects tasks, over ports alone."""
