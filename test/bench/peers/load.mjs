// What the programs of the peers share: callers that wait for each answer, or calls at a rate, and what their times say.
// Runs on Node, in a folder where the peer's packages are installed.

const percentile = (sorted, share) =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0;

/** Milliseconds at these shares. */
export function told(tookMs) {
  const sorted = [...tookMs].sort((one, other) => one - other);
  return { p50: percentile(sorted, 0.5), p95: percentile(sorted, 0.95), p99: percentile(sorted, 0.99) };
}

const warmMs = 500;

/** So many callers, each asking again once it is answered: how many a second, and how long each took. */
export async function callers(count, seconds, call) {
  const countAt = performance.now() + warmMs;
  const endAt = countAt + seconds * 1_000;
  const tookMs = [];
  const caller = async (place) => {
    for (;;) {
      const askedAt = performance.now();
      if (askedAt >= endAt) return;
      await call(place);
      const now = performance.now();
      if (now >= countAt && now < endAt) tookMs.push(now - askedAt);
    }
  };
  await Promise.all(Array.from({ length: count }, (_, place) => caller(place)));
  return { perS: tookMs.length / seconds, count: tookMs.length, ...told(tookMs) };
}

/** Calls at a rate, whatever became of those before. */
export async function paced(rate, seconds, call) {
  const calls = [];
  const beginAt = performance.now();
  for (let number = 0; number < rate * seconds; number++) {
    const waitMs = beginAt + (number * 1_000) / rate - performance.now();
    if (waitMs > 0) await new Promise((next) => setTimeout(next, waitMs));
    calls.push(call(number));
  }
  return Promise.all(calls);
}

export const note = "x".repeat(200);
export const tell = (figures) => process.stdout.write(`${JSON.stringify(figures)}\n`);
