"""Medians, quartiles, and differences and ratios of paired samples with their confidence."""
import random
import statistics

RESAMPLES = 2000
CONFIDENCE = 0.95


def quantile(ordered, q):
    """Of sorted numbers, between the two nearest ones."""
    at = q * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (at - low)


def summary(samples):
    ordered = sorted(samples)
    return {"median": quantile(ordered, 0.5), "q1": quantile(ordered, 0.25),
            "q3": quantile(ordered, 0.75), "least": ordered[0], "samples": list(samples)}


def interval(values):
    """Median of the values, and a bootstrap confidence interval of it. The same values give the same interval."""
    chance = random.Random(1)
    medians = sorted(statistics.median(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
    tail = (1 - CONFIDENCE) / 2
    return {"median": statistics.median(values), "low": quantile(medians, tail),
            "high": quantile(medians, 1 - tail)}


def compare(samples, base):
    """Samples against those of the same rounds of another configuration."""
    pairs = list(zip(samples, base))
    return {"difference": interval([a - b for a, b in pairs]),
            "ratio": interval([a / b for a, b in pairs])}
