"""How many samples a second PyTorch trains and infers on the first GPU: run by bench/part_pytorch.py, inside a slice and
outside, by a Python that has torch.

    torch_load.py SECONDS

Prints one line of JSON. Exit status 77, with a line why: there is no torch here, or no GPU that it can use."""
import json
import sys
import time

SKIPPED = 77
BATCH = 64


def skip(why):
    print(why, file=sys.stderr)
    sys.exit(SKIPPED)


try:
    import torch
except ImportError as error:
    skip(f"{sys.executable} has no torch: {error}")
nn = torch.nn


def convolutions():
    model = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.ReLU(),
                          nn.Conv2d(128, 128, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(128, 10))
    return model, torch.randn(BATCH, 3, 64, 64)


def transformer():
    layer = nn.TransformerEncoderLayer(256, 8, dim_feedforward=1024, batch_first=True)
    return nn.TransformerEncoder(layer, 4), torch.randn(BATCH, 128, 256)


def train(model, batch):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    model.train()

    def step():
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    return step


def infer(model, batch):
    model.eval()

    def step():
        with torch.no_grad():
            model(batch)
    return step


def rate(step, seconds):
    """Samples a second; the first steps, which compile and allocate, don't count."""
    for _ in range(5):
        step()
    torch.cuda.synchronize()
    begin, steps = time.perf_counter(), 0
    while time.perf_counter() < begin + seconds:
        for _ in range(10):
            step()
        torch.cuda.synchronize()
        steps += 10
    return steps * BATCH / (time.perf_counter() - begin)


def main():
    if not torch.cuda.is_available():
        skip(f"torch {torch.__version__} finds no GPU that it can use")
    torch.manual_seed(1)
    found = {}
    for name, make in (("convolutions", convolutions), ("transformer", transformer)):
        model, batch = make()
        model, batch = model.to("cuda"), batch.to("cuda")
        for what, begin in (("training", train), ("inference", infer)):
            found[f"{name}, {what}"] = rate(begin(model, batch), float(sys.argv[1]))
    print(json.dumps({"torch": torch.__version__, "gpu": torch.cuda.get_device_name(0), "samples_per_second": found}))


main()
