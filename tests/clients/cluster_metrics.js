// Reads /metrics of the cluster under test, as the tests of both Node clients need it.
'use strict';

const kCancelSeconds = 1;  // a client that goes away frees its KV blocks everywhere within this

// The value of one line of a /metrics page; 0 for a series that has not been counted yet.
async function metric(url, series) {
  const answer = await fetch(url, { signal: AbortSignal.timeout(5000) });
  const line = (await answer.text()).split('\n').find((one) => one.startsWith(`${series} `));
  return line === undefined ? 0 : Number(line.slice(series.length + 1));
}

async function activeBlocks() {
  const url = process.env.BATON_TEST_DECODE_METRICS;
  if (await metric(url, 'baton_kv_blocks_total_count') === 0) {
    throw new Error(`${url} has no KV blocks at all`);
  }
  return metric(url, 'baton_kv_blocks{state="active"}');
}

// Requests whose client went away, by door: "chat", "completions" or "grpc".
const clientsGone = (door) => metric(process.env.BATON_TEST_ROUTER_METRICS,
  `baton_requests_total{code="499",door="${door}"}`);

// Seconds until `condition()` held, or null when it did not within `limit`.
async function secondsUntil(condition, limit) {
  const start = performance.now();
  for (;;) {
    const spent = (performance.now() - start) / 1000;
    if (spent > limit) return null;
    if (await condition()) return spent;
  }
}

module.exports = { activeBlocks, clientsGone, secondsUntil, kCancelSeconds };
