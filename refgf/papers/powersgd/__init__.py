"""PowerSGD (Vogels et al. 2019): gradients of low rank, whose factors an allreduce can sum."""
