"""A submission: its check cells, what there is to execute of it, what came out, and where it stands."""
