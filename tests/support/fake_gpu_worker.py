"""Speaks the GPU worker's protocol without a GPU: misbehaves as its requests ask."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any


def send(token: str, message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message | {"token": token}) + "\n")
    sys.stdout.flush()


def main() -> None:
    greeting = json.loads(sys.stdin.readline())
    if sys.argv[1:] == ["open only"] and greeting["enclosed"]:
        os._exit(9)
    if sys.argv[1:2] == ["fails first"]:  # as often as told, and leaves a line of each time
        _, _, tries, count = sys.argv
        with open(tries, "a+") as file:
            file.write(".\n")
            file.seek(0)
            if len(file.readlines()) <= int(count):
                os._exit(9)
    send(greeting["token"], {"gpu": "fake", "environment": sorted(os.environ)})
    served = 0
    for line in sys.stdin:
        request = json.loads(line)
        token, do = request["token"], request["do"]
        send(token, {"stage": request.get("stage", "candidate")})
        if do == "exit":
            os._exit(0)
        if do == "kill":
            os.kill(os.getpid(), signal.SIGSEGV)
        if do == "fail":
            print("the last words", file=sys.stderr, flush=True)
            os._exit(7)
        if do == "hang":
            subprocess.Popen(["sleep", "1000"])
            time.sleep(1000)
        if do == "forge":
            send("another token", {"verdict": "passed"})
        if do == "noise":
            print("no JSON", flush=True)
        if do == "flood":
            while True:
                sys.stdout.write("x" * (1 << 20))
        served += 1
        answer: dict[str, Any] = {"served": served, "pid": os.getpid()}
        if do == "leak":
            answer["leaked_bytes"] = 1 << 40
        if do == "fill":
            answer["out_of_memory"] = True
        if do == "break":
            answer["broken"] = True
        send(token, answer)


main()
