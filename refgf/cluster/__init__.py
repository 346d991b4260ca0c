"""An emulated cluster: nodes with shaped links between them, on one Linux machine, without root.

    python -m refgf.cluster run --nodes 4 --ranks-per-node 2 --rate 1gbit -- \
        python lessons/01_ring_allreduce.py
    python -m refgf.cluster run --like v100-56gbit -- python lessons/07_gradientflow.py
    python -m refgf.cluster probe --nodes 4 --rate 1gbit
    python -m refgf.cluster check

A node is a set of Linux namespaces that belongs to a process: its own network (one `eth0`, shaped
in both directions, connected to a bridge), host name (`node0` ...), System V IPC and /dev/shm.
MPI's own launcher starts the ranks there. Ranks of different nodes communicate by TCP across the
link only; ranks of one node share memory. After the run the links' byte counters are compared with
the bytes in the ranks' traces, so a figure can be trusted.

                      head 10.77.255.254 (bridge; mpiexec runs here)
          ____________________|____________________
         |             |             |             |        both ends of each cable:
       eth0          eth0          eth0          eth0       tbf at the stated rate
    node0         node1         node2         node3         10.77.0.1, 10.77.0.2, ...
    ranks 0, 1    ranks 2, 3    ranks 4, 5    ranks 6, 7

    settings.py   the settings of a cluster, checked
    like.py       named clusters (machines/*.json): links and GPUs, each number with its source
    capacity.py   how many bytes per second this machine carries between nodes
    check.py      whether this machine can run a cluster, and if not, why and what to change
    outside.py    the user's side: starts the namespaces and ends them with the command
    inside.py     process 1 of the new namespaces: builds the nodes, runs the command, accounts
    network.py    bridge, cables, shaping, byte counters: the commands for `ip` and `tc`
    launcher.py   how MPICH's and Open MPI's mpiexec reach the nodes
    account.py    compares counters with traces
    probe.py      raw TCP and MPI's alpha and beta between every two nodes

Not emulated: compute. The ranks share this machine's cores and memory, so computing does not get
faster with more nodes. `--like NAME` therefore slows everything down by one factor K: the links
here, and the computing in programs that sleep as long as the cluster's GPUs would compute, times K
(refgf/machine/accelerator.py). All ratios of times stay those of the cluster.
"""
