"""Three ranks use the library wrongly, or not alike, or one of them leaves.

The job must end within 5 s of the wrong call, or of the watchdog's WATCHDOG_S where only waiting
shows what is wrong; not with 0; with a sentence. Threads stand for ranks in the cheap cases.
"""

import os
import random
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

from tests.attack.fate import GONE_S, Fate, fate_of, judge, several
from tests.support.jobs import mpiexec

RANKS, WATCHDOG_S, START_S = 3, 4, 60.0
STARTS = 3  # the watchdog ends a start, too, if a busy machine has ranks in MPI_Init for so long
PROGRAM = """
import refgf.launch
import os, pathlib, signal, sys, threading, warnings
import numpy as np
from tests.support import stacks
from tests.support.tiny import N, Prescribed
from refgf.comm.direct import direct_allreduce
from refgf.comm.gather import allgather, reduce_scatter
from refgf.comm.ring import ring_allreduce
from refgf.engine.pipelined import pipelined_ring_allreduce
from refgf.exchange.chunk_choice import Density
from refgf.machine import threads
from refgf.machine.checkpoint import Checkpoints

def work(comm):
    rank, bad = comm.Get_rank(), comm.Get_rank() == {bad}
    def cause():
        pathlib.Path("cause").touch()
    def flow_of(dtype=np.float32, **parts):
        return stacks.new_flow(comm, Prescribed(dtype), **parts)
    def step(rate=0.1, batch=6):
        g = np.random.default_rng([flow.steps, rank]).standard_normal((2, N)).astype(np.float32)
        flow.step(g, None, batch, rate)
{body}
    print("finished")

if {on_threads}:
    threads.run({ranks}, work)
else:
    from mpi4py import MPI
    work(MPI.COMM_WORLD)
"""
STEPS = """
flow = flow_of({settings})
for number in range(5):
    if number == {moment}:
        cause()
        {fault}
    step()
flow.close()
"""
SUMS = """
sums, x = {algorithm}(comm), np.ones({n}, np.float32)
for number in range(4):
    if number == {moment}:
        cause()
        {fault}
    sums(x)
    if not np.all(x == 3.0 ** (number + 1)):
        print("wrong sums")
"""
SETTINGS = several(
    """
;; wire=np.float16 ;; overlap=True ;; overlap=True, wire=np.float16, theta_bytes=40
;; density=Density(20), chunk=8 ;; allreduce=direct_allreduce, theta_bytes=0""",
    ";;",
)
# a group of wrong lines, and the program around them
TABLE = """leaves, STEPS
raise SystemExit(3) ;; sys.exit(2) ;; exit(3) ;; quit(4) ;; raise KeyError('mine') ;; np.zeros(1)[5]
;; raise KeyboardInterrupt ;; threading.Thread(target=lambda: 1 / 0).start()
;; sys.exit('rank of no use')

leaves silently, STEPS
os._exit(3) ;; os.abort() ;; os.kill(os.getpid(), signal.SIGSEGV)

ends early, STEPS
raise SystemExit ;; sys.exit() ;; exit() ;; return ;; os._exit(0)

unequal steps, STEPS
step() ;; continue ;; flow.close() ;; flow.evaluate(None) ;; flow.finish()
;; Checkpoints('kept', flow).save({}) ;; flow.require_same_parameters()
;; flow.model.parameters.flat[0] += 1; flow.require_same_parameters()

unequal settings, MAKE
wire=np.float16 ;; theta_bytes=0 ;; allreduce=direct_allreduce ;; momentum=0.5 ;; weight_decay=0.1
;; density=Density(20), chunk=8 ;; half_weights=True ;; allreduce=pipelined_ring_allreduce
;; dtype=np.float16, wire=np.float16

unequal sums, SUMS
x = x[:-1].copy() ;; x = x[:1].copy() ;; x = np.append(x, x) ;; x = x.astype(np.float64)
;; x = x.astype(np.float16) ;; sums = {algorithm}(comm, wire=np.float16) ;; sums = {other}(comm)
;; continue ;; sums(x)

wrong settings, MAKE
wire='banana' ;; wire=np.int8 ;; wire=bool ;; wire=7 ;; wire='f4,f4' ;; theta_bytes=-1
;; theta_bytes='all' ;; theta_bytes=float('nan') ;; density=-1 ;; density=0 ;; density=101
;; density=float('nan') ;; density=Density(10), chunk=0 ;; density=Density(10), form='none of them'
;; dtype=np.int32 ;; momentum=float('nan') ;; weight_decay=-1.0 ;; allreduce='ring'

wrong steps, STEPS
step(batch=0) ;; step(batch=-6) ;; step(rate=float('nan')) ;; step(rate='fast') ;; flow.ready(99)
;; flow.ready('w1') ;; flow.ready(0); flow.ready(0) ;; flow.finish() ;; flow.close(); step()
;; flow.close(); flow.require_same_parameters() ;; Checkpoints('kept', flow).save({1: object()})
;; Checkpoints('kept', flow).save(None) ;; flow.close(); Checkpoints('kept', flow).save({})
;; Checkpoints('cause', flow).save({})

wrong sums, SUMS
x = x.reshape(1, -1) ;; x = x.astype(int) ;; x = x.tolist() ;; x = None ;; x = x[::2]
;; x.flags.writeable = False ;; x = x.astype(object) ;; x = np.float32(3) ;; x = 'x'
;; sums = ring_allreduce(comm, wire='banana') ;; sums = allgather(comm, [7])
;; sums = ring_allreduce(None) ;; sums = reduce_scatter(comm, [rank, rank])"""
FORMS = {"MAKE": "cause()\n{fault}\n", "STEPS": STEPS, "SUMS": SUMS}
GROUPS = dict(paragraph.split("\n", 1) for paragraph in TABLE.split("\n\n"))
OTHER = {"direct_allreduce": "ring_allreduce"}
OTHER |= dict.fromkeys(("ring_allreduce", "pipelined_ring_allreduce"), "direct_allreduce")


def case(rng: random.Random) -> tuple[str, Callable]:
    bad, n = rng.randrange(RANKS), rng.choice((4, 7, 1 << 17))
    group, form = (title := rng.choice(list(GROUPS))).split(", ")
    names = {"settings": rng.choice(SETTINGS), "algorithm": rng.choice(list(OTHER)), "n": n}
    names |= {"moment": rng.randrange(4), "other": OTHER[names["algorithm"]]}
    fault = rng.choice(several(GROUPS[title], ";;"))
    if form == "SUMS":
        fault = fault.format(**names)
    on_threads = not group.startswith(("leaves", "ends")) and rng.random() < 0.5
    everywhere = group.startswith("wrong") and rng.random() < 0.5
    line = fault if everywhere else f"if bad: {fault}"
    if form == "MAKE":
        all_ranks = "" if everywhere else "if bad else {}"
        line = f"flow = flow_of(**(dict({fault}) {all_ranks}))\nstep()\nstep()"
    body = textwrap.indent(FORMS[form].format(**names, fault=line), "    ")
    source = PROGRAM.format(bad=bad, body=body, on_threads=on_threads, ranks=RANKS)
    where = f"{'threads' if on_threads else 'MPI'}, {'all ranks' if everywhere else f'rank {bad}'}"
    shown = [f"{key}={names[key]}" for key in names if f"{{{key}}}" in FORMS[form]]
    python = [sys.executable, "-c", source]
    program = python if on_threads else [mpiexec(), "-n", str(RANKS), *python]

    def attack(folder: Path) -> list[str]:
        """The watchdog is on, but a job that a rank leaves with an error ends without it."""
        for _ in range(STARTS):
            fate = fate_of(
                program,
                folder,
                strike=lambda pid, seconds: (folder / "cause").exists() or seconds > START_S,
                limit_s=GONE_S + (0 if group.startswith("leaves") else WATCHDOG_S),
                env={"PYTHONPATH": os.pathsep.join(sys.path), "REFGF_STALL_S": WATCHDOG_S},
            )
            if (folder / "cause").exists():
                break
        return verdict(fate, group, fault, bad)

    return f"{group}, {where}: {fault} ({', '.join(shown)})", attack


def verdict(fate: Fate, group: str, fault: str, bad: int) -> list[str]:
    """Threads say who waits for whom; a rank that leaves is named."""
    says = not (group.startswith("leaves") or "Deadlock: " in fate.err)
    wrong = judge(fate, says=says, own=True)
    if "wrong sums" in fate.out and fate.code == 0:
        wrong.append("wrong sums without a word")
    if group == "leaves" and "rank of no use" not in fault and f"rank {bad}" not in fate.err:
        wrong.append(f"rank {bad} is not named")
    return wrong
