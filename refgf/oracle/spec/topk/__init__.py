"""T: fine-grained sparsity. gs: per step the gradients of each rank, p arrays (n,).

choice.py   T1, T2    how many elements are sent, and which; exercises keep_count, top_k
mstopk.py   T3        nearly the same ones, without sorting; exercise threshold
steps.py    T4 to T6  error feedback, top-k and HiTopKComm; exercise topk_step
traffic.py  T7, T8    what they send; exercise step_bytes
"""
