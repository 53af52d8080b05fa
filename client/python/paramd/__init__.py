"""The client of paramd, a parameter-server daemon, for Python."""
