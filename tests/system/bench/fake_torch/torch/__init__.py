"""As much of torch as bench/torch_load.py uses, doing nothing: proves the way of the measurement, no figure."""
import contextlib
import os
import time

__version__ = "0.fake"
# Slower inside a slice, so that a test sees which is which.
STEP_S = 0.0004 if os.environ.get("CARVE_SESSION") else 0.0002


class Tensor:
    def to(self, device):
        assert device == "cuda"
        return self

    def square(self):
        return self

    def mean(self):
        return self

    def backward(self):
        time.sleep(STEP_S)


def randn(*shape):
    assert all(isinstance(n, int) for n in shape)
    return Tensor()


def manual_seed(seed):
    """Nothing here is random."""


def no_grad():
    return contextlib.nullcontext()


class cuda:
    @staticmethod
    def is_available():
        return os.environ.get("FAKE_TORCH_NO_GPU") is None

    @staticmethod
    def synchronize():
        time.sleep(STEP_S)

    @staticmethod
    def get_device_name(index):
        return f"Fake GPU {index}"


class nn:
    class Module:
        def __init__(self, *args, **options):
            self.training = True

        def __call__(self, batch):
            assert isinstance(batch, Tensor)
            time.sleep(STEP_S)
            return batch

        def to(self, device):
            assert device == "cuda"
            return self

        def parameters(self):
            return [1]

        def train(self):
            self.training = True

        def eval(self):
            self.training = False


for _name in ("Sequential", "Conv2d", "ReLU", "AdaptiveAvgPool2d", "Flatten", "Linear", "TransformerEncoderLayer",
              "TransformerEncoder"):
    setattr(nn, _name, type(_name, (nn.Module,), {}))


class optim:
    class SGD:
        def __init__(self, parameters, lr):
            assert parameters and lr > 0

        def zero_grad(self):
            """There are no gradients."""

        def step(self):
            time.sleep(STEP_S)
