"""MG-WFBP (Shi, Chu, Li 2019): merged gradients."""
