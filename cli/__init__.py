"""The command line: runs a whole stack on one machine, and speaks to any gateway over HTTP."""
