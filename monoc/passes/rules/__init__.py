"""The fuse pass's rules, a stage kind (or a few that belong together) a file."""
