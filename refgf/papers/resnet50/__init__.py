"""ResNet-50 (He et al. 2015)."""
