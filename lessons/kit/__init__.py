"""What all lessons share: arguments, ranks, timing, tables, result files. It has no algorithms.

    lesson = kit.Lesson(__file__, __doc__, REVEAL)  a lesson
    lesson.argument("--theta", ...)                 its own arguments
    lesson.main(measure, draw)

    measure(run) -> dict      runs on every rank; rank 0's dict goes to results/NN_name.json.
                              Or it yields a dict for each section: Ctrl-C loses one of them
    draw(result) -> figure    draws results/NN_name.png from that dict; `--plot` does only this,
                              without MPI

`run` is a `Run`: communicator, options, timing, printing on rank 0. Modules:

    lesson, run                 a lesson as a command; one rank's view of it
    claims, verdict, reveal     what you should see, decided by the numbers; what is printed of it
    rows, experiment            look-ups in a result; variants in turn, and the processor's own work
    oracle, rejected            what the lessons' oracles share; --wrong-anyway
    mine, gathered              --mine: a student's functions, and trainings that use them
    gpu                         where arrays are computed: --device
    regime, virtual             which cluster is emulated; a step on a virtual accelerator
    words, record, axes         units and sentences; contents of the JSON; the frame of figures
    images, flow, trials        images and networks; the stack, timed and trained; repeated runs
    step_times, call_times      steps on ranks that share cores; allreduce calls in and out of steps
    calls                       call times of each kind of sum in the stack
    replay, layers              a backward pass with given times; a step layer by layer
    rounding, placement         bounds on rounding errors; which ranks share a node
    checks, memory              what is refused before a run; how much memory a rank needs

Code of a single lesson is in `lab`.
"""

from kit.lesson import Lesson, positive, threshold_bytes  # noqa: F401
from kit.run import Run, Timing  # noqa: F401
from kit.words import errors_in_words, number_of_bytes, seconds, threshold  # noqa: F401
from refgf.comm.native import mpi_allreduce  # noqa: F401
