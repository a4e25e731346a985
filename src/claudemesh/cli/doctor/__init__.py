"""`doctor`: what is wrong on this machine, and the command that mends it. The command is in `command`."""
