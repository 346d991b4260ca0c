"""Answers to lessons/student/04.py: full marks."""


def ready_times(forward_s, layers_s):
    ready_s, now_s = [], forward_s
    for layer_s in layers_s:
        now_s += layer_s
        ready_s.append(now_s)
    return ready_s


def calls_with_overlap(ready_s, call_s):
    calls, free_s = [], 0.0
    for ready, duration in zip(ready_s, call_s):
        start_s = max(free_s, ready)
        free_s = start_s + duration
        calls.append((start_s, free_s))
    return calls


def calls_without_overlap(ready_s, call_s):
    calls, delay_s = [], 0.0
    for ready, duration in zip(ready_s, call_s):
        start_s = ready + delay_s
        calls.append((start_s, start_s + duration))
        delay_s += duration
    return calls


def exposed_and_hidden(ready_s, call_s, compute_s):
    calls = calls_with_overlap(ready_s, call_s)
    exposed_s = max(0.0, calls[-1][1] - compute_s) if calls else 0.0
    return exposed_s, sum(call_s) - exposed_s
