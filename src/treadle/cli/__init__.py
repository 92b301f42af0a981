"""The command line `treadle`: a surface that reads tasks, shows them and hands commands to a runner."""
