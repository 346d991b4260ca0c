"""Foreign schedules judged as data: MSCCL XML, MSCCL++ plans, Chakra traces, run symbolically."""
