"""The command line `treadle`: it reads tasks, shows them, and passes commands to a runner."""
