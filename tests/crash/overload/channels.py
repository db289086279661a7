"""Thousands of idle channels, opened by a few processes on one machine, and their survival.

A channel counts as alive if it was never renewed (C17) and at the end gets one message of its own
and the answer to its accept. Channels that the broker gave up are in its log.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ackq_broker
from ackq.client import Admin, Channel, Publisher
from ackq.errors import AckqError
from tests.crash.overload import measured

SILENT = "no sign of life"


def add_arguments(parser):
    """Options for the number of channels and the duration."""
    parser.add_argument("--channels", type=int, default=2000)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument(
        "--stop", type=float, default=0, help="seconds for which the broker is stopped half way"
    )
    parser.add_argument("--callbacks", action="store_true", help="each with a callback")
    parser.add_argument("--client", help=argparse.SUPPRESS)


def run(args):
    """Opens channels, waits, takes a message on each; returns whether all are alive."""
    if args.client:
        return hold(args)
    with (
        tempfile.TemporaryDirectory() as folder,
        ackq_broker.embedded(Path(folder) / "data") as broker,
    ):
        with Admin(broker.endpoint) as admin:
            for number in range(args.processes):
                admin.declare_queue(f"idle.{number}")
        began = time.monotonic()
        clients = [_client(args, broker.endpoint, number) for number in range(args.processes)]
        for client in clients:
            assert client.stdout.readline() == b"open\n"
        opened_s = time.monotonic() - began
        pids = {"broker": broker.pid} | {
            f"client {number}": client.pid for number, client in enumerate(clients)
        }
        meters = {name: measured.Meter(pid) for name, pid in pids.items()}
        time.sleep(args.seconds / 2)
        if args.stop:
            _stopped([broker.pid], args.stop)
        time.sleep(args.seconds / 2)
        said = [f"{name}: {meter.said()}" for name, meter in meters.items()]
        each = args.channels // args.processes
        with Publisher(broker.endpoint) as publisher:
            for number in range(args.processes):
                for _ in range(each):
                    publisher.publish(b"for each", routing_key=f"idle.{number}")
            publisher.flush(60)
        for client in clients:
            client.stdin.write(b"take\n")
            client.stdin.flush()
        found = [json.loads(client.stdout.readline()) for client in clients]
        for client in clients:
            client.stdin.close()
            client.wait(120)
        silent = broker.log_file.read_text().count(SILENT)
    total = {name: sum(client[name] for client in found) for name in found[0]}
    opened = each * args.processes
    print(f"opened {opened} channels of {args.processes} processes in {opened_s:.1f} s")
    print(
        f"idle for {args.seconds:g} s: {silent} given up by the broker, {total['renewed']} renewed"
    )
    print(f"at the end: {total['taken']} took a message, {total['failed']} failed", *said, sep="\n")
    return total["taken"] == opened and not silent and not total["renewed"]


def _stopped(pids, seconds):
    """Stops processes for a while, as on a machine that is starved or suspended."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def _client(args, endpoint, number):
    each = args.channels // args.processes
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.crash.overload", "channels"),
            *("--channels", f"{each}", "--client", f"{endpoint} idle.{number}"),
            *(("--callbacks",) if args.callbacks else ()),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )


def hold(args):
    """Runs one process that opens channels, and takes a message on each when asked to."""
    endpoint, queue = args.client.split(" ")
    renewed, taken, failed = [], [], []
    channels = [Channel(endpoint, on_reconnect=renewed.append) for _ in range(args.channels)]
    give = taken.append if args.callbacks else None
    consumers = [
        channel.consume(queue, give, mode="auto" if give else "client", prefetch=1)
        for channel in channels
    ]
    print("open", flush=True)
    assert sys.stdin.readline() == "take\n"
    if give is None:
        for consumer in consumers:
            try:
                message = consumer.receive(timeout_s=60)
                if message is not None:
                    message.accept().result(60)
                    taken.append(message)
            except AckqError as error:
                failed.append(repr(error))
    deadline = time.monotonic() + 60
    while give and len(taken) < args.channels and time.monotonic() < deadline:
        time.sleep(0.05)
    if failed:
        print(failed[0], file=sys.stderr)
    figures = {"renewed": len(renewed), "taken": len(taken), "failed": len(failed)}
    print(json.dumps(figures), flush=True)
    sys.stdin.readline()
    for channel in channels:
        channel.close(10)
    return True
