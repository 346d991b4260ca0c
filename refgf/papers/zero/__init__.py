"""ZeRO (Rajbhandari et al. 2020): ranks share what each of them holds in plain data parallelism."""
