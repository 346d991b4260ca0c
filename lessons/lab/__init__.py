"""Measurements and pictures of one lesson each. Shared code is in `kit`.

02    layer_tables                                      11    large_batch_picture, lars_norms,
03    latency_region, theta_sweep                             rate_search
04    gantt                                             12    topk_*
06    csc_picture                                       13    daso_picture, daso_replay
08    machine_file, published_tables, rank_subset,      14    cache_levels, cache_picture,
      scaling_picture                                         scratch_folder
09    greedy_misses, merge_picture                      15    bottleneck_study, kernel_times,
10    hierarchy_picture, node_links                           performance_picture
"""
