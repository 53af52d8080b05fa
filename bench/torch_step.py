"""PyTorch's side of training_bench.py: the same network, batches, optimizers and commands as training_step.cc.

In eager mode on one thread, in the quickest form found: for plain SGD an update written by hand is quicker than
torch.optim.SGD, for the others the fused optimizers are.
"""

import sys
import time
import warnings

warnings.filterwarnings("ignore", message="Failed to initialize NumPy")

import torch
from torch.nn import functional

ROWS = 32
LAYERS = (784, 128, 10)


class HandWrittenSgd:
    def __init__(self, parameters, lr):
        self.parameters = list(parameters)
        self.lr = lr

    def zero_grad(self):
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self):
        for parameter in self.parameters:
            parameter.add_(parameter.grad, alpha=-self.lr)


OPTIMIZERS = {
    "sgd": lambda parameters: HandWrittenSgd(parameters, lr=0.01),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.01, momentum=0.9, nesterov=True, fused=True),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.001, fused=True),
}


def make_step(optimizer):
    first = torch.nn.Linear(LAYERS[0], LAYERS[1])
    second = torch.nn.Linear(LAYERS[1], LAYERS[2])
    parameters = (first.weight, first.bias, second.weight, second.bias)
    updates = OPTIMIZERS[optimizer](parameters)

    def step(features, labels):
        hidden = torch.relu(functional.linear(features, parameters[0], parameters[1]))
        loss = functional.cross_entropy(functional.linear(hidden, parameters[2], parameters[3]), labels)
        updates.zero_grad()
        loss.backward()
        updates.step()

    return step


def main():
    torch.set_num_threads(1)
    torch.manual_seed(1)
    batches = [(torch.rand(ROWS, LAYERS[0]), torch.randint(LAYERS[-1], (ROWS,))) for _ in range(64)]
    steps = {name: make_step(name) for name in OPTIMIZERS}
    print(f"PyTorch {torch.__version__}", flush=True)
    for line in sys.stdin:
        name, count = line.split()
        step = steps[name]
        start = time.perf_counter()
        for i in range(int(count)):
            step(*batches[i % len(batches)])
        print(time.perf_counter() - start, flush=True)


if __name__ == "__main__":
    main()
