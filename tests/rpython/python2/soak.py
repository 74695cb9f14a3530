"""Perform random operations that are difficult for a sampler.

    soak.py SEED ROUNDS

A test compares the output with sampling to the output without.
"""
import gc
import os
import random
import sys
import threading
import weakref

COUNT = 2000


class Node(object):
    dead = 0

    def __init__(self):
        self.other = None

    def __del__(self):
        self.text = [str(i) for i in range(3)]
        Node.dead += 1


def strings(rnd):
    return sum(len(str(i)) for i in range(COUNT))


def large(rnd):
    return len(bytearray(rnd.randrange(300000))) + len("x" * 140000)


def recursion(rnd):
    def down(depth):
        return down(depth - 1) + [depth] if depth else []
    return len(down(300))


def endless(rnd):
    def down():
        return [down()]
    try:
        down()
    except RuntimeError as e:
        return str(e)


def raising(rnd):
    count = 0
    for i in range(COUNT):
        try:
            raise ValueError(str(i))
        except ValueError as e:
            count += len(e.args)
    return count


def finalizers(rnd):
    before = Node.dead
    for i in range(100):
        one, two = Node(), Node()
        one.other, two.other = two, one
        weakref.ref(one, lambda ref: [str(i) for i in range(3)])
    one = two = None
    for i in range(3):
        gc.collect()
    return Node.dead - before


def threads(rnd):
    found = []
    def work():
        found.append(strings(None))
    started = [threading.Thread(target=work) for i in range(4)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    return found


def fork(rnd):
    child = os.fork()
    if child == 0:
        code = 1
        try:
            strings(rnd)
            gc.collect()
            code = 0
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1]


def main():
    rnd = random.Random(int(sys.argv[1]))
    for i in range(int(sys.argv[2])):
        work = rnd.choice((strings, large, recursion, endless, raising,
                           finalizers, threads, fork))
        print("%s %r" % (work.__name__, work(rnd)))


main()
