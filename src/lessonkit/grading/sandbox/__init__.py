"""A submission runs in a sandbox, in a process that decides nothing about its own grade."""
