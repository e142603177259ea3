"""jobctl: background jobs on PostgreSQL. This file is the list of public names, nothing else."""
