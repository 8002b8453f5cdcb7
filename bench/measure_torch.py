"""What PyTorch makes of a slice as its GPU: run by bench/measure.py inside a slice, by a Python that has torch.

    measure_torch.py BYTES

BYTES is the size of the slice. Prints a line a check, `ok WHAT` or `FAILED WHAT: WHY`, and goes on; exit status 1 where one
failed, 77 (with a line why) where there is no torch, or no GPU that it can use."""
import os
import sys

SKIPPED = 77
MIB = 1 << 20

try:
    import torch
except ImportError as error:
    print(f"{sys.executable} has no torch: {error}", file=sys.stderr)
    sys.exit(SKIPPED)


def expect(holds, why):
    if not holds:
        raise AssertionError(why)


def block(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


def view(size):
    """The device's size may be shown in whole MiB."""
    free, total = torch.cuda.mem_get_info()
    shown = torch.cuda.get_device_properties(0).total_memory
    expect(abs(total - size) < MIB and abs(shown - size) < MIB, f"of {size} bytes it sees {total} and {shown}")
    expect(0 <= free <= total, f"{free} of {total} free")
    expect(torch.cuda.device_count() == 1, f"{torch.cuda.device_count()} GPUs")


def refused_and_recovered(size):
    """All of it in blocks, then a refusal that is caught; what was given back can be had again. Twice."""
    for _ in range(2):
        held = []
        try:
            while len(held) * 64 * MIB <= 2 * size:
                held.append(block(64))
        except torch.cuda.OutOfMemoryError:
            pass
        got = len(held) * 64 * MIB
        expect(size // 2 < got <= size, f"{got} bytes could be had in a slice of {size}")
        held.clear()
        torch.cuda.empty_cache()
        expect(int(block(size // 4 // MIB).fill_(7).max()) == 7, "what was given back is not usable")
        torch.cuda.empty_cache()


def training(_):
    model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    batch = torch.randn(256, 1024, device="cuda")
    losses = []
    for _ in range(50):
        optimizer.zero_grad()
        loss = (model(batch) - batch).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss))
    expect(losses[-1] < losses[0], f"the loss went from {losses[0]} to {losses[-1]}")


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, index):
        return torch.full((64,), float(index))


def data_loader(_):
    """Workers are forked from a process that has a context; pinned memory is not the slice's."""
    loader = torch.utils.data.DataLoader(Numbers(), batch_size=128, num_workers=4, pin_memory=True)
    before, total = torch.cuda.mem_get_info()[0], 0.0
    for batch in loader:
        total += float(batch.cuda(non_blocking=True).sum())
    expect(total == 64 * sum(range(4096)), f"the sum is {total}")
    expect(before - torch.cuda.mem_get_info()[0] < 256 * MIB, "workers took of the slice")


def graphs_and_streams(_):
    source, result = torch.ones(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        result.copy_(source * 2)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result.add_(source)
    for _ in range(100):
        graph.replay()
    torch.cuda.synchronize()
    expect(float(result[0]) == 102, f"100 replays made {float(result[0])} of 2")


def products(_):
    """cuBLAS takes a workspace of its own."""
    a = torch.randn(2048, 2048, device="cuda")
    expect(torch.allclose(a @ torch.eye(2048, device="cuda"), a, atol=1e-2), "a product with the unit matrix is another")


CHECKS = {"the slice is the GPU's size": view, "out of memory is refused, caught and recovered from": refused_and_recovered,
          "training": training, "DataLoader with 4 workers and pinned memory": data_loader,
          "graphs and streams": graphs_and_streams, "matrix products": products,
          "out of memory again, after all of that": refused_and_recovered}


def main():
    if not torch.cuda.is_available():
        print(f"torch {torch.__version__} finds no GPU that it can use", file=sys.stderr)
        sys.exit(SKIPPED)
    torch.manual_seed(1)
    size, failed = int(sys.argv[1]), False
    print(f"torch {torch.__version__}, allocator {os.environ.get('PYTORCH_CUDA_ALLOC_CONF') or 'as it is by default'}")
    for name, check in CHECKS.items():
        try:
            check(size)
            print(f"ok {name}", flush=True)
        except Exception as error:  # whatever it is, it is what has to be told
            failed = True
            print(f"FAILED {name}: {type(error).__name__}: {error}".replace("\n", " ")[:400], flush=True)
    sys.exit(failed)


if __name__ == "__main__":
    main()
