"""Learning rates of large batches: linear scaling, warm-up, polynomial decay."""


def linear_scaling(base_rate: float, global_batch: int, base_batch: int = 256) -> float:
    """A batch k times as large has a rate k times as large (Goyal et al. 2017, section 2.1)."""
    return base_rate * global_batch / base_batch


def warmup(rate: float, step: int, warmup_steps: int, start_rate: float = 0.0) -> float:
    """Gradual warm-up from start_rate to rate in equal increments; step 0 is above start_rate.

    `rate` is what the schedule says for this step, returned as it is once step >= warmup_steps - 1.
    Goyal et al. start at the rate of one worker (start_rate = base_rate) and take 5 epochs.
    """
    if step < 0 or warmup_steps < 0:
        got = f"warmup: got step={step}, warmup_steps={warmup_steps}"
        raise ValueError(f"{got}; wanted neither negative; next: count from 0")
    if step + 1 >= warmup_steps:
        return rate
    return start_rate + (rate - start_rate) * (step + 1) / warmup_steps


def polynomial_decay(rate: float, step: int, steps: int, power: float = 2.0) -> float:
    """rate * (1 - step/steps)**power: the whole rate at step 0, nothing from `steps` on."""
    if step < 0 or steps < 1 or power <= 0:
        got = f"polynomial_decay: got step={step}, steps={steps}, power={power}"
        raise ValueError(f"{got}; wanted >= 0, >= 1, > 0; next: count steps from 0")
    return rate * max(0.0, 1 - step / steps) ** power
