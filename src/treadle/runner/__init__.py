"""The runner: creates, drives, controls and inspects tasks, over ports alone."""
