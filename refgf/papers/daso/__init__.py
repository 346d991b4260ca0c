"""DASO (Coquelin et al. 2021): nodes that synchronise asynchronously."""
