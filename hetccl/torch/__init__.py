"""The PyTorch front: what torch.distributed finds under the name "nccl"."""
