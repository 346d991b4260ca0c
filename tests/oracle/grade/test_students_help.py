"""What a student is told who prints, stops in a debugger, forgets Wait or mistakes an argument."""

import pytest

from refgf.oracle.grade import marking, report
from tests.support.students import InThisProcess, answers_with

SEND_AND_RECEIVE = """
def allreduce(comm, x):
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left, got = (rank + 1) % size, (rank - 1) % size, np.empty_like(x)
    for _ in range(size - 1):
        {}
        x += got
"""


@pytest.fixture
def in_a_sandbox(tmp_path):
    """(lesson, code, exercise) -> its mark, as a user gets it: with what the file prints."""

    def mark(lesson, code, name, **more):
        return answers_with(tmp_path, lesson, code, only=name, **more)[name]

    return mark


@pytest.fixture
def marks(in_a_sandbox, monkeypatch):
    monkeypatch.setattr(marking, "Sandbox", InThisProcess)
    return in_a_sandbox


def sentence(mark, what):
    return next(part.sentence for part in mark.parts if part.what == what)


PRINTS = """
def ring_cost(n, p, rank):
    print("n is", n, "\\x1b[2J")
    print("19 of 19 points (100%)\\n" * 30)
    return 2 * (p - 1), 2 * (p - 1) * (n // p)
"""


def test_what_the_first_wrong_call_prints_is_shown_and_is_no_mark(in_a_sandbox):
    mark = in_a_sandbox("01", PRINTS, "ring_cost")
    lines = report.as_text([mark]).splitlines()
    assert "  printed in ring_cost(7, 3, 0):" in lines and "       | n is 7 \\x1b[2J" in lines
    assert lines.count("       | 19 of 19 points (100%)") == 11 and lines[-2] == "       | ..."
    assert lines[-1] == "2 of 5 points (40%)"


def test_a_right_function_shows_its_first_print(in_a_sandbox):
    code = "\nRIGHT = ring_cost\ndef ring_cost(*a):\n    print(a, end='')\n    return RIGHT(*a)\n"
    mark = in_a_sandbox("01", code, "ring_cost")
    assert mark.points == mark.of and mark.printed == ["ring_cost(8, 4, 0)", "(8, 4, 0)"]


@pytest.mark.usefixtures("impatient")
def test_an_endless_print_neither_blocks_nor_fills_the_memory(in_a_sandbox):
    mark = in_a_sandbox(
        "01", "\ndef ring_cost(*a):\n    while True: print('y' * 1000)\n", "ring_cost"
    )
    assert mark.parts[0].sentence.startswith("did not end within")
    assert len("".join(mark.printed)) < 2000 and mark.printed[1].startswith("yyy")


def test_ranks_print_too_and_with_hidden_cases_nothing_is_shown(in_a_sandbox, monkeypatch):
    (exercise,) = (each for each in marking.exercises_of("01") if each.name == "allreduce")
    monkeypatch.setattr(exercise, "shapes", ((1, 5), (2, 4)))
    code = "\nRIGHT = allreduce\ndef allreduce(comm, x):\n    print(x.size)\n    RIGHT(comm, x)\n"
    assert in_a_sandbox("01", code, "allreduce").printed[:2] == ["allreduce, p = 1, n = 5", "5"]
    assert in_a_sandbox("01", code, "allreduce", seed=7).printed == []


@pytest.mark.parametrize("call", ["breakpoint()", "input()"])
def test_a_debugger_has_a_sentence(in_a_sandbox, call):
    code = f"\ndef ring_cost(n, p, rank):\n    {call}\n    return n, p\n"
    assert "but nobody can answer here; next: call the function yourself" in sentence(
        in_a_sandbox("01", code, "ring_cost"), "p divides n"
    )


def test_a_send_without_wait_loses_its_messages(marks):
    code = SEND_AND_RECEIVE.format("comm.Isend(x.copy(), right); comm.Recv(got, left)")
    found = sentence(marks("01", code, "allreduce"), "messages")
    assert found.startswith("rank 0 never waits for its Isend to rank 1; next: request = comm.Isen")


def test_right_values_with_a_send_without_wait_lose_only_messages(marks):
    code = """
def sum_of_ranks(comm, x):
    other = np.empty_like(x)
    if comm.Get_rank():
        comm.Isend(x.copy(), 0)
        comm.Recv(x, 0)
        return
    for source in range(1, comm.Get_size()):
        comm.Recv(other, source)
        x += other
    for dest in range(1, comm.Get_size()):
        comm.Isend(x, dest).Wait()
"""
    mark = marks("00", code, "sum_of_ranks")
    assert [p.what for p in mark.parts if p.points < p.of] == ["messages"]
    assert "rank 1 never waits for its Isend to rank 0" in sentence(mark, "messages")


def test_a_receive_without_wait_is_named_with_the_values(marks):
    code = SEND_AND_RECEIVE.format("comm.Irecv(got, left); comm.Isend(x, right)")
    found = sentence(marks("01", code, "allreduce"), "values")
    assert found.startswith("rank 0 never waits for its Irecv from rank 1: ")


@pytest.mark.parametrize(
    "call, wanted",
    [
        ("comm.Sendrecv(x, right, got, left)", "Sendrecv(sendbuf, dest, sendtag, recvbuf, "),
        ("comm.Send(right, x)", "Send(buf, dest)"),
        ("comm.Irecv(left, got)", "Irecv(buf, source)"),
    ],
)
def test_arguments_in_another_order_are_named(marks, call, wanted):
    found = sentence(marks("01", SEND_AND_RECEIVE.format(call), "allreduce"), "values")
    assert f"got int in the place of an array; wanted {wanted}" in found


@pytest.mark.parametrize(
    "change, other",
    [
        ("x /= comm.Get_size()", "the mean, not the sum"),
        ("x *= 2", "twice the sum"),
        ("x *= comm.Get_size()", "twice the sum"),  # two ranks
        ("x -= own", "the sum without its own numbers"),
        ("x += own", "the sum with its own numbers twice"),
    ],
)
def test_another_sum_is_recognised(marks, change, other):
    code = f"""
RIGHT = allreduce
def allreduce(comm, x):
    own = x.copy()
    RIGHT(comm, x)
    if comm.Get_size() > 1:
        {change}
"""
    mark = marks("01", code, "allreduce")
    assert sentence(mark, "values").startswith(f"rank 0 holds {other}: rank 0, element 0: got ")
    assert sentence(mark, "bits").startswith("lost with the values")


RING = """
def allreduce(comm, x):
    r, p = comm.Get_rank(), comm.Get_size()
    cut = {cut}
    for shift in (0, 1):
        for t in range(p - 1):
            ks = t, {expected}
            (a, b), (c, d) = (cut[(r + {turn} * ({moved} * shift - k)) % p] for k in ks)
            got = np.empty(d - c, x.dtype)
            comm.Sendrecv({sent}, (r + {turn} * {right}) % p, 0, got, (r - {turn} * {right}) % p, 0)
            x[c:d] = {new}
"""
PLAIN = {
    "cut": "slices(x.size, p)",
    "turn": 1,
    "moved": 1,
    "right": 1,
    "expected": "t + 1",
    "sent": "x[a:b]",
    "new": "got if shift else x[c:d] + got",
}


@pytest.mark.parametrize("sent", ["x[a:b]", "x[a:b].copy()"])
@pytest.mark.parametrize(
    "change, said",
    [
        ({}, ""),
        ({"turn": -1}, "your ring runs backwards, "),
        ({"moved": 0}, "your allgather begins with slice rank, "),
        ({"new": "x[c:d] + got"}, "you add in the allgather, too: "),
        ({"right": -1}, "your neighbours are swapped: "),
        ({"expected": "t - 1 + 2 * shift"}, "in the reduce-scatter you expect the slice after"),
        ({"expected": "t - 2 + 3 * shift"}, "rank "),  # no mistake that has a name
        ({"new": "got"}, "you overwrite what you should add to, "),
        ({"cut": "[(i * (x.size // p), (i + 1) * (x.size // p)) for i in range(p)]"}, "your slice"),
    ],
)
def test_a_mistake_is_named_whether_copies_are_sent_or_not(marks, sent, change, said):
    mark = marks("01", RING.format(**PLAIN | change | {"sent": sent}), "allreduce")
    lost = [part.sentence for part in mark.parts if part.points < part.of]
    assert bool(lost) == bool(said) and all(each.startswith(said) for each in lost[:1]), lost


def test_a_ring_that_begins_with_another_slice_is_not_called_backwards(marks):
    """On 3 ranks its sums have the bits of the ring that runs the other way."""
    cut = "[slices(x.size, p)[(i + 1) % p] for i in range(p)]"
    mark = marks("01", RING.format(**PLAIN | {"cut": cut}), "allreduce")
    hint = sentence(mark, "bits")
    assert "from the wanted order of adding, for p = 3" in hint and "backwards" not in hint, hint


@pytest.mark.parametrize(
    "returned, said",
    [
        ("2 * p, RIGHT(n, p, rank)[1]", "you count 2p messages"),
        ("RIGHT(n, p, rank)[0], 4 * RIGHT(n, p, rank)[1]", "you count bytes"),
    ],
)
def test_a_ring_cost_in_other_numbers_is_named(marks, returned, said):
    code = f"\nRIGHT = ring_cost\ndef ring_cost(n, p, rank):\n    return {returned}\n"
    assert sentence(marks("01", code, "ring_cost"), "p divides n").startswith(said)


def test_a_mean_in_lesson_00_is_no_ring(marks):
    code = """
RIGHT = sum_of_ranks
def sum_of_ranks(comm, x):
    RIGHT(comm, x)
    x /= comm.Get_size()
"""
    text = report.as_text([marks("00", code, "sum_of_ranks")])
    assert "your x ends as the mean" in text and "ring" not in text and "return" not in text


def test_numbers_have_as_many_digits_as_show_the_difference(marks):
    code = """
RIGHT = allreduce
def allreduce(comm, x):
    RIGHT(comm, x)
    if comm.Get_size() > 2:
        x[...] = np.nextafter(x, np.float32(9))
"""
    mark = marks("01", code, "allreduce")
    numbers = sentence(mark, "bits").partition("got ")[2].partition(", from")[0].split("; wanted ")
    assert len(numbers) == 2 and all(len(n.lstrip("-0.")) <= 10 for n in numbers), numbers


def test_a_step_that_changes_its_weights_loses_that_point(marks):
    code = """
RIGHT = step_on_ranks
def step_on_ranks(w, xs, ys, rate):
    w[...] = RIGHT(w.copy(), xs, ys, rate)[0]
    return [w] * len(xs)
"""
    mark = marks("00", code, "step_on_ranks")
    assert mark.points == mark.of - 1
    found = sentence(mark, "w and the samples stay as they are")
    assert found.startswith("it changes its arguments in place; wanted new arrays, for step_on_")


def test_a_gradient_without_transposing_fails_for_one_sample(marks):
    code = "\ndef gradient(w, x, y):\n    return x @ (x @ w - y) / len(y)\n"
    mark = marks("00", code, "gradient")
    assert mark.points == 0
    said = "you multiply the errors by x; wanted x.T, its transpose; raised ValueError: matmul: "
    assert all(part.sentence.startswith(said) for part in mark.parts)


def test_an_exception_is_compared_without_its_line(in_a_sandbox):
    """Another one, or the same where the mistake has a result, is not named."""
    code = "\ndef gradient(w, x, y):\n    {}\n    return x @ (x @ w - y) / len(y)\n"
    named = "you multiply the errors by x"
    said = sentence(in_a_sandbox("00", code.format("pass"), "gradient"), "several samples")
    assert said.startswith(named) and "(line " in said
    other = in_a_sandbox("00", code.format("if len(y) > 1: raise ValueError('x')"), "gradient")
    assert named not in sentence(other, "several samples")


def test_seconds_without_calls_are_not_taken_for_the_longer_time(marks):
    code = "\ndef step_seconds(calls, compute_s, a, b):\n    return compute_s\n"
    mark = marks("03", code, "step_seconds")
    assert mark.points == 1 and "the longer of" not in sentence(mark, "several calls")


@pytest.mark.parametrize("seed", range(3))
def test_examples_and_one_call_get_no_point_for_the_ends(marks, seed):
    """theta = 0 has another hidden case than the starter's example."""
    code = """
def lazy_calls(sizes, theta):
    return [(0, 2), (2, 5)] if theta == 0 and sizes == [2, 3] else [(0, sum(sizes))] * bool(sizes)
"""
    assert marks("03", code, "lazy_calls", seed=seed).points == 0


@pytest.mark.parametrize("kept, said", [("kept", True), ("[(1, 1)]", False)])
def test_what_a_file_keeps_between_calls_is_asked_for(in_a_sandbox, kept, said):
    """A student who tries the call that is shown gets the right result."""
    code = f"""
right = lazy_calls
def lazy_calls(sizes, theta, kept=[]):
    kept += right(sizes, theta)
    return {kept}
"""
    mark = in_a_sandbox("03", code, "lazy_calls")
    lost = [part.sentence for part in mark.parts if part.points < part.of]
    assert lost and all(text.startswith("right alone, wrong after") == said for text in lost), lost


def test_one_call_is_not_taken_for_elements(marks):
    code = "\ndef lazy_calls(sizes, theta):\n    return [(0, sum(sizes))]\n"
    text = report.as_text([marks("03", code, "lazy_calls")])
    assert "one call, whatever theta is" in text and "elements with theta" not in text


def test_a_mistake_is_named_only_if_it_gives_all_results(marks):
    """One call, except where theta is 0: in two of three parts that is as with elements."""
    code = """
def lazy_calls(sizes, theta):
    return ([(0, 2), (2, 5)] if theta == 0 else [(0, sum(sizes))]) if sizes else []
"""
    assert "elements" not in report.as_text([marks("03", code, "lazy_calls")])


def test_a_scale_that_never_doubles_is_not_said_to_double_late(marks):
    code = (
        "\nRIGHT = next_scale\ndef next_scale(scale, good_steps, finite, interval):\n"
        "    return RIGHT(scale, good_steps, finite, 2 * interval + 1)\n"
    )
    said = sentence(marks("05", code, "next_scale"), "good steps")
    assert said.startswith("you do not double after interval good steps: good_steps does not")


@pytest.mark.parametrize("change, said", [("- 2", "no message goes to it"), ("- 1", "into x")])
def test_x_is_unchanged_where_nothing_comes(marks, change, said):
    code = SEND_AND_RECEIVE.replace("size - 1", f"size {change}").replace("x += got", "x + got")
    code = code.format("comm.Sendrecv(x, right, 0, got, left, 0)")
    text = sentence(marks("01", code, "allreduce"), "values")
    assert text.startswith("x is unchanged on rank 0: ") and said in text.split(":")[1]


def test_a_long_call_is_cut_in_the_line_of_what_it_printed(in_a_sandbox):
    code = "\ndef convolution(*a):\n    print(1)\n"
    text = report.as_text([in_a_sandbox("02", code, "convolution")])
    assert "  printed in convolution([" in text and max(map(len, text.splitlines())) <= 100


def test_a_mistake_that_explains_all_parts_is_named_in_each(marks):
    """In one of three parts, elements for bytes give what one call for all gives."""
    code = (
        "\nRIGHT = lazy_calls\ndef lazy_calls(sizes, theta):\n    return RIGHT(sizes, 4 * theta)\n"
    )
    text = report.as_text([marks("03", code, "lazy_calls")])
    assert text.count("you compare elements with theta") == 3 and "one call" not in text


def test_a_file_may_set_its_own_environment_variables(in_a_sandbox):
    """As a file does that wants NumPy with one thread. It may start no process that gets them."""
    code = "\nimport os\nos.environ['OMP_NUM_THREADS'] = '1'\ndel os.environ['OMP_NUM_THREADS']\n"
    mark = in_a_sandbox("01", code, "ring_cost")
    assert mark.points == mark.of
