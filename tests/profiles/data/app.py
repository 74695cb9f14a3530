"""What the profiles here are of."""
import sys
import threading


def down(depth):
    return down(depth - 1) if depth else [str(i) for i in range(40)]


def items(count):
    for i in range(count):
        yield str(i) * 20


def work():
    for depth in 3, 40, 600:
        down(depth)
    return sum(map(len, items(300)))


sys.setrecursionlimit(5000)
thread = threading.Thread(target=work)
thread.start()
thread.join()
for _ in range(5):
    work()

# as a user writes
# mypy: ignore-errors
