"""Sets of tasks: folders of references, KernelBench, problems with workloads; all as references."""
