"""What surrounds training on a machine: ranks as threads, links, timelines, checkpoints, images."""
