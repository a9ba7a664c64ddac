"""`hetccl bench`: collectives against their peers, in the same processes and the same run."""
