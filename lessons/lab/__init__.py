"""What belongs to one lesson each: its measurements and its pictures. Shared code is in `kit`.

02    layer_tables                                      09    greedy_misses
03    latency_region, theta_sweep
04    gantt                                             10    hierarchy_picture
06    csc_picture                                       11    lars_norms, rate_search
08    machine_file, published_tables, rank_subset,      13    daso_replay
      scaling_picture                                   14    cache_levels, scratch_folder
15    kernel_times, performance_picture
"""
