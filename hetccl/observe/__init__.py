"""What hetccl tells: its log and rank 0's report."""
