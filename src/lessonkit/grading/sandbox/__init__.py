"""A submission runs behind walls, in a process that decides nothing about its own grade."""
