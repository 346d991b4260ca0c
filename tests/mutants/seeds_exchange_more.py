"""Mistakes seeded in what refgf/exchange has beside its techniques."""

from mutant import Mutant

BLOCKS, METER, OVERLAP, PACKING, POOL = (
    f"refgf.exchange.{name}" for name in ("blocks", "meter", "overlap", "packing", "pool")
)

MUTANTS = [
    Mutant(BLOCKS, "the short last block is lost", "range(start, stop, step)", "range(start, stop - step + 1, step)",
           killed_by="exchange/test_precision.py::test_ties_go_to_even"),
    Mutant(BLOCKS, "a block reaches beyond its part", "min(first + step, stop)", "first + step",
           killed_by="training/test_lars.py::test_parts_leave_the_rest_alone"),
    Mutant(BLOCKS, "decay is left out of the weights, not of the biases", "if not spec.decay]", "if spec.decay]",
           killed_by="training/test_gradientflow_oracle.py::test_forms_on_exact_data"),
    Mutant(METER, "what is waited for counts as all that is exposed", "return max(0.0, self.together_s - self.compute_s)",
           "return self.waited_s", killed_by="exchange/test_meter.py::test_only_what_follows_the_first_gradient_can_be_hidden"),
    Mutant(METER, "communication before the first gradient counts as hideable",
           "min(self.communication_s, self.window_s, self.compute_s)", "min(self.communication_s, self.compute_s)",
           killed_by="exchange/test_meter.py::test_only_what_follows_the_first_gradient_can_be_hidden"),
    Mutant(METER, "overlap always pays", "return self.together_s < self.sequential_s", "return True",
           killed_by="exchange/test_meter.py::test_a_spinning_thread_does_not_count_as_hiding"),
    Mutant(METER, "waiting counts as slower computation", "(self.together_s - self.waited_s) / self.compute_s",
           "self.together_s / self.compute_s", killed_by="exchange/test_meter.py::test_half_hidden_and_slower_compute"),
    Mutant(OVERLAP, "nobody waits", "            self._idle.wait_for(lambda: self._pending == 0 or self._error)\n", "",
           killed_by="exchange/test_overlap.py::test_wait_waits"),
    Mutant(OVERLAP, "an error in the thread is swallowed", "                raise self._error\n", "                pass\n",
           killed_by="exchange/test_overlap.py::test_an_error_reaches_the_waiting_thread"),
    Mutant(OVERLAP, "busy seconds of earlier steps count again", "busy_s, self._busy_s = self._busy_s, 0.0",
           "busy_s = self._busy_s", killed_by="exchange/test_overlap.py::test_wait_waits"),
    Mutant(PACKING, "the short last chunk is lost", "if len(rows) < len(chosen):", "if False:",
           killed_by="training/test_accumulate.py::test_exact_gradients_add_up_under_csc"),
    Mutant(PACKING, "the short last chunk begins one element late", "short = slice(whole * chunk, n)",
           "short = slice(min(whole * chunk + 1, n), n)",
           killed_by="training/test_accumulate.py::test_exact_gradients_add_up_under_csc"),
    Mutant(PACKING, "chunks are put back in the opposite order", "self._matrix(x)[self._index(x)] = values",
           "self._matrix(x)[self._index(x)[::-1]] = values",
           killed_by="training/test_ladder.py::test_csc_dgc_at_100_percent_is_dense_on_exact_data"),
    Mutant(POOL, "in the order of the forward pass", "self.specs = list(specs)", "self.specs = list(specs)[::-1]",
           killed_by="exchange/test_pool.py::test_views_lie_next_to_each_other_in_the_buffer"),
    Mutant(POOL, "views are copies", ".reshape(spec.shape)\n", ".reshape(spec.shape).copy()\n",
           killed_by="exchange/test_pool.py::test_views_lie_next_to_each_other_in_the_buffer"),
    Mutant(POOL, "the layout tells no shapes", 'f"{spec.name}{tuple(spec.shape)}"', 'f"{spec.name}"',
           killed_by="exchange/test_pool.py::test_layout_tells_orders_apart"),
]  # fmt: skip
