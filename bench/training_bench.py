"""One training step of the example's network beside PyTorch's, in turns within one run. scripts/training_bench.sh
builds and installs what it needs.

Prints a Markdown table; --json=FILE holds the same for programs. Exits with 0 also when PyTorch could not be measured:
then the table says why.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROWS = 32
OPTIMIZERS = ("sgd", "momentum", "adam")


class Trainer:
    """A process that takes lines "OPTIMIZER STEPS" and answers with seconds."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.name = self.read()

    def read(self):
        line = self.process.stdout.readline()
        if not line:
            raise OSError(f"{self.process.args[-1]} ended with exit code {self.process.wait()}")
        return line.strip()

    def us_per_step(self, optimizer, steps):
        print(optimizer, steps, file=self.process.stdin, flush=True)
        return float(self.read()) / steps * 1e6

    def stop(self):
        self.process.stdin.close()
        self.process.wait()


def measure(trainers, optimizer, rounds, steps):
    """µs/step of each trainer in each round. The first round does not count."""
    taken = [[] for _ in trainers]
    for round_number in range(rounds + 1):
        turns = list(enumerate(trainers))
        for i, trainer in turns if round_number % 2 else reversed(turns):
            us = trainer.us_per_step(optimizer, steps)
            if round_number > 0:
                taken[i].append(us)
    return taken


def row(name, baseline, taken, not_measured):
    us = statistics.median(taken[0])
    result = {"name": name, "us_per_step": us, "samples_per_s": ROWS / us * 1e6, "baseline": baseline}
    if not_measured:
        result["not_measured"] = not_measured
    else:
        result["baseline_us_per_step"] = statistics.median(taken[1])
        result["ratio"] = statistics.median(ours / theirs for ours, theirs in zip(*taken))
    return result


def table(rows):
    yield f"| optimizer | µs/step | samples/s | {rows[0]['baseline']} µs/step | ratio |"
    yield "|---|---|---|---|---|"
    for r in rows:
        ours = f"| {r['name']} | {r['us_per_step']:.0f} | {r['samples_per_s']:,.0f} |"
        if "not_measured" in r:
            yield f"{ours} not measured: {r['not_measured']} | |"
        else:
            yield f"{ours} {r['baseline_us_per_step']:.0f} | {r['ratio']:.2f} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--training_step", required=True, help="the program //bench:training_step")
    parser.add_argument("--python", default="", help="an interpreter that has PyTorch; none: PyTorch is not measured")
    parser.add_argument("--why_no_python", default="no --python given", help="what to say then")
    parser.add_argument("--rounds", type=int, default=101)
    parser.add_argument("--steps", type=int, default=50, help="in each round")
    parser.add_argument("--json", default="", help="write the results to this file too")
    options = parser.parse_args()
    if options.rounds < 1 or options.steps < 1:
        parser.error("--rounds and --steps must be positive")

    trainers = [Trainer([options.training_step])]
    baseline = "PyTorch"
    not_measured = "" if options.python else options.why_no_python
    if options.python:
        try:
            trainers.append(Trainer([options.python, str(pathlib.Path(__file__).parent / "torch_step.py")]))
            baseline = trainers[1].name
        except OSError as error:
            not_measured = str(error)
    rows = [
        row(optimizer, baseline, measure(trainers, optimizer, options.rounds, options.steps), not_measured)
        for optimizer in OPTIMIZERS
    ]
    for trainer in trainers:
        trainer.stop()
    print("\n".join(table(rows)))
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"training": rows}, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    sys.exit(main())
