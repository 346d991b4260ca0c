"""What further figures of a lesson show, for readers who do not see them. No measured numbers.

The first figure of a lesson has its words in figures/NN_name.json ("alt").
"""

ALTS = {
    "03_lazy_allreduce_region": "Latency of a message against the rate of a link: where eager "
    "calls take 1.5 and 3 times as long as one call. Three networks are marked. Computed.",
    "04_overlap_progress": "Bars: how far a large message gets while its sender sleeps, for a "
    "non-blocking call, one that is polled, and a blocking call in a thread.",
    "04_overlap_timeline": "Time lines of two ranks: forward, backward, allreduce, waiting and "
    "update in one step, without overlap and with it.",
    "05_mixed_precision_rounding": "Rounding error of ring and direct against the number of ranks; "
    "the same errors next to the noise of a mini-batch, against the batch.",
    "05_mixed_precision_scale": "Shares of the gradients that become zero or infinite against the "
    "loss scale; bars of accuracy in float32 and in float16 with three loss scales.",
    "06_csc_learning": "Appendix: loss with other choices of chunks minus that of the choice by "
    "importance; accuracy of four forms of CSC minus that of dense training. With intervals.",
    "06_csc_times": "Stacked bars of a step of AlexNet, dense and at each density, and of the "
    "exchange of a small network: predicted from messages and own work, next to what was measured.",
    "07_gradientflow_learning": "Held-out accuracy against seconds of the cluster, dense and with "
    "CSC, with intervals and a line at the accuracy to reach.",
    "07_gradientflow_nodes": "Scaling efficiency against nodes for five stacks, from ring alone to "
    "all techniques.",
    "07_gradientflow_resnet50": "Bars of a step of ResNet-50 on 10 Gbit/s as each technique is "
    "added, with scaling efficiency, gain and prediction.",
    "08_scaling_far": "Predicted scaling efficiency of ResNet-50 on 4 to 2048 ranks for five "
    "stacks, with bands; what each technique gains on 4 and on 2048 ranks.",
    "08_scaling_headlines": "Bars: predicted over published number for each headline of the "
    "papers, from the lowest to the highest prediction.",
    "08_scaling_models": "Predicted time of one allreduce against ranks: closed form, contention "
    "and calibrated TCP; a fat tree with two orders of the ranks.",
    "08_scaling_rows": "Predicted against published time of steps on 16 GPUs, three systems, "
    "Ethernet and InfiniBand. Titles: mean errors, from inputs only and with one overhead fitted.",
    "09_merged_gradients_counterexample": "Bars: when the last call of three gradients ends by the "
    "greedy rule and by the best merge, measured and predicted.",
    "09_merged_gradients_far": "Bars: the same step with the latency of a ring on 128 ranks, by "
    "one theta, the greedy rule and the best merge, measured and predicted.",
    "09_merged_gradients_misses": "Share of cases in which the greedy rule's step is longer than "
    "the best merge's by at least so many percent: random and real networks.",
    "09_merged_gradients_scaling": "Predicted scaling efficiency of ResNet-50 against GPUs, for "
    "eager calls, one call, the greedy rule and the best merge, on two networks.",
    "10_hierarchical_allreduce_bus": "Bars: time of the flat ring and three hierarchies with the "
    "bus inside a node slowed down, and at the speed of this machine's memory.",
    "10_hierarchical_allreduce_nodes": "Time of three hierarchies against the ranks that are "
    "treated as a node, for a short and a longer vector; lines without hierarchy.",
    "11_large_batch_norms": "Bars: time of a LARS step by who forms the norms: each rank all of "
    "them, equal slices, or whole layers. Two sizes of network.",
    "11_large_batch_gains": "Paired differences in accuracy: LARS over SGD at each batch and "
    "length, and warm-up over none. With intervals.",
    "11_large_batch_rates": "Best learning rate found against the batch, SGD and LARS, next to "
    "lines of linear scaling.",
    "12_topk_accuracy": "Accuracy against the bytes of the whole training: CSC with and without "
    "warm-up, top-k of the same density and of the same bytes, dense.",
    "12_topk_choice": "Time to choose 1 % against the number of gradients, for four selections; "
    "bars of messages and own work for each exchange at 10 % and 1 %.",
    "13_daso_learning": "Distance of a node from the mean of all against the batch of an epoch, "
    "for four settings of DASO; accuracy minus that of synchronous training.",
    "13_daso_diloco": "Bars: time of a batch, and bytes between nodes, synchronous, by DASO and by "
    "DiLoCo; accuracy of DiLoCo and local SGD at equal steps and at equal seconds.",
    "14_data_cache_levels": "Bars: where the images of the last epoch come from, for each cache; "
    "memory of each node's cache.",
    "14_data_cache_stores": "Seconds of the first and of later epochs with each cache, measured "
    "and predicted, when the store is the folder of another node.",
    "14_data_cache_training": "Bars: seconds of waiting for images and of steps in the first two "
    "epochs, without a cache, with one in memory, and with prefetching.",
    "15_performance_model_bottlenecks": "Which of computing and network takes the largest share of "
    "a predicted step, by images a rank and rate of a link: AlexNet and ResNet-50.",
    "15_performance_model_composed": "Time of a step against ranks, measured and predicted by "
    "roofline and perceptrons, with rings after backward.",
    "15_performance_model_roofline": "Attainable flop/s against flops for each byte, for this "
    "machine's core and a V100, with fc6 and conv1 of AlexNet at 1 and at 64 images.",
    "16_sharding_links": "Predicted time of a step with ZeRO-1 and FSDP over that with DDP against "
    "the rate of the link: AlexNet and ResNet-50, in few units and in many.",
}
