"""What goes on PYTHONPATH in an image that has no hetccl: this folder, and nothing beside it."""
