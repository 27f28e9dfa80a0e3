#!/usr/bin/env python3
"""Post an event to sidehook with nothing but Python's own HTTP client.

    python3 publish.py TYPE ID DATA        such as: python3 publish.py invoice.paid in_1 '{"amount": 1000}'

The intake is $SIDEHOOK, http://127.0.0.1:9292 by default.
"""

import http.client
import json
import os
import sys
import time
import urllib.error
import urllib.request

INTAKE = os.environ.get("SIDEHOOK", "http://127.0.0.1:9292")

# The intake is on this host, and refuses what came through a proxy: those of the environment are left out.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class PublishError(Exception):
    """The intake refused the event. Posting it again does not help; `problem` says why."""

    def __init__(self, problem):
        super().__init__(f"{problem.get('type')}: {problem.get('detail') or problem.get('title')}")
        self.problem = problem


def publish(event_type, event_id, data, patience=60.0):
    """Return what sidehook answered once the event is on its disk: its id and its deliveries.

    `event_id` is yours, such as the key of the row that the event is about: the same event is posted again until there
    is an answer, and counts once. Raise PublishError if it is refused, the last error if `patience` seconds were not
    enough.
    """
    body = json.dumps({"id": event_id, "type": event_type, "data": data}).encode()
    give_up, pause = time.monotonic() + patience, 0.1
    while True:
        request = urllib.request.Request(INTAKE + "/v1/events", data=body, headers={"Content-Type": "application/json"})
        try:
            with _opener.open(request, timeout=10) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            with error:
                text = error.read()
            if error.code != 503:
                raise PublishError(json.loads(text)) from error
            failure, wait = error, float(error.headers.get("Retry-After", pause))  # the store is full, or sidehook busy
        except (OSError, http.client.HTTPException, json.JSONDecodeError) as error:
            failure, wait = error, pause  # sidehook restarts
        if time.monotonic() + wait > give_up:
            raise failure
        time.sleep(wait)
        pause = min(2 * pause, 5.0)


if __name__ == "__main__":
    if len(sys.argv) != 4:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    try:
        print(json.dumps(publish(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))))
    except (PublishError, OSError, ValueError) as error:
        sys.exit(f"{sys.argv[2]} was not accepted: {error}")
