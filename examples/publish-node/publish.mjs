#!/usr/bin/env node
// Post an event to sidehook with nothing but Node's own fetch.
//
//     node publish.mjs TYPE ID DATA        such as: node publish.mjs invoice.paid in_1 '{"amount": 1000}'
//
// The intake is $SIDEHOOK, http://127.0.0.1:9292 by default.

import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";

const intake = process.env.SIDEHOOK ?? "http://127.0.0.1:9292";

/** The intake refused the event. Posting it again does not help; `problem` says why. */
export class PublishError extends Error {
  constructor(problem) {
    super(`${problem.type}: ${problem.detail ?? problem.title}`);
    this.problem = problem;
  }
}

/**
 * Returns what sidehook answered once the event is on its disk: its id and its deliveries.
 *
 * `id` is yours, such as the key of the row that the event is about: the same event is posted again until there is an
 * answer, and counts once. Throws PublishError if it is refused, the last error if `patience` seconds were not enough.
 */
export async function publish(type, id, data, patience = 60) {
  const body = JSON.stringify({ id, type, data });
  const giveUp = performance.now() + patience * 1000;
  for (let pause = 100; ; pause = Math.min(2 * pause, 5000)) {
    let failure;
    let wait = pause;
    try {
      const response = await fetch(`${intake}/v1/events`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body,
        redirect: "error",
        signal: AbortSignal.timeout(10_000),
      });
      const answer = await response.json();
      if (response.ok) return answer;
      if (response.status !== 503) throw new PublishError(answer);
      failure = new PublishError(answer); // the store is full, or sidehook busy
      wait = Number(response.headers.get("retry-after") ?? pause / 1000) * 1000;
    } catch (error) {
      if (error instanceof PublishError) throw error;
      failure = error; // sidehook restarts
    }
    if (performance.now() + wait > giveUp) throw failure;
    await sleep(wait);
  }
}

if (import.meta.url === pathToFileURL(process.argv[1]).href) {
  const [type, id, data] = process.argv.slice(2);
  if (data === undefined) {
    console.error("usage: node publish.mjs TYPE ID DATA");
    process.exit(2);
  }
  try {
    console.log(JSON.stringify(await publish(type, id, JSON.parse(data))));
  } catch (error) {
    console.error(`${id} was not accepted: ${error.message}`);
    process.exitCode = 1;
  }
}
