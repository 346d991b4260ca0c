"""Answers to lessons/student/09.py: full marks."""


def groupings(count):
    if count == 0:
        return [[]]
    return [[first, *rest] for first in range(1, count + 1) for rest in groupings(count - first)]


def step_end(ready_s, nbytes, counts, a_s, b_s_per_byte):
    end_s, begin = 0.0, 0
    for count in counts:
        stop = begin + count
        end_s = max(end_s, ready_s[stop - 1]) + a_s + b_s_per_byte * sum(nbytes[begin:stop])
        begin = stop
    return end_s


def greedy_counts(ready_s, nbytes, a_s, b_s_per_byte):
    counts, begin, start_s = [], 0, 0.0
    for i, now_s in enumerate(ready_s):
        start_s = max(start_s, now_s)
        if i + 1 == len(ready_s) or ready_s[i + 1] - start_s >= a_s:
            start_s += a_s + b_s_per_byte * sum(nbytes[begin : i + 1])
            counts.append(i + 1 - begin)
            begin = i + 1
    return counts


def best_end(ready_s, nbytes, a_s, b_s_per_byte):
    tried = groupings(len(ready_s))
    return min(step_end(ready_s, nbytes, counts, a_s, b_s_per_byte) for counts in tried)
