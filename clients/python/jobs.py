"""What the jobs of `test_rq` do: rq's workers find them by their names."""


def add(first, second):
    return first + second


def fail(message):
    raise ValueError(message)
