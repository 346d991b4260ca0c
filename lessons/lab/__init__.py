"""Measurements, claims and pictures of one lesson each. Shared code is in `kit`.

01    ring_claims
02    layer_claims, layer_tables
03    latency_region, lazy_here, lazy_steps, theta_sweep; with 09: grouped_steps, predicted_places
04    gantt, message_progress, overlap_here, overlap_picture, overlap_steps
05    half_numbers, half_rounding, half_times, loss_scales, precision_picture
06    csc_alone, csc_forms, csc_here, csc_learning, csc_picture, csc_reference, csc_results,
      csc_study, csc_times
07    ladder, ladder_picture, stack_here, stack_learning
08    machine_file, published_tables, rank_subset, scaling_far, scaling_here, scaling_picture,
      scaling_points, scaling_values
09    greedy_misses, merge_here, merge_picture, merge_steps
10    buffered_sends, hierarchy_picture, hierarchy_steps, hierarchy_times, hierarchy_values,
      node_links
11    large_batch_claims, large_batch_picture, lars_norms, rate_search
12    topk_bytes, topk_choice, topk_exchange, topk_learning, topk_methods, topk_picture, topk_values
13    daso_claims, daso_learning, daso_picture, daso_replay, daso_scene, daso_terms, daso_times
14    cache_claims, cache_levels, cache_picture, scratch_folder
15    bottleneck_study, kernel_times, performance_claims, performance_picture

In a name, `here` is the scene on this machine as it is (--like this-machine).
"""
