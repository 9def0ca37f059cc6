import type { Clock } from "../../kit/clock.ts";
import { Fault } from "../../kit/fault.ts";

export interface Throttle {
  /** Counts an attempt; throws `resource_exhausted` with `Retry-After` when there were too many. */
  attempt(account: string, address: string): void;
  /** The attempt succeeded: it was no guess. */
  succeeded(account: string, address: string): void;
}

/** Whoever has an IPv6 address mostly has 2^64 of them: they count as one. */
function placeOf(address: string): string {
  if (!address.includes(":") || address.toLowerCase().startsWith("::ffff:")) return address;
  const [head = "", tail] = address.split("::");
  const groups = head === "" ? [] : head.split(":");
  if (tail !== undefined) {
    const last = tail === "" ? [] : tail.split(":");
    while (groups.length + last.length < 8) groups.push("0");
    groups.push(...last);
  }
  return groups
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(":");
}

const windowMs = 60_000;
const pairsMax = 100_000;

/**
 * Attempts of one account from one address, counted before anything is computed, so that parallel guesses count too. The
 * real user still gets in from elsewhere. An address that tries many accounts is counted as a whole as well.
 */
export function openThrottle(deps: {
  clock: Pick<Clock, "elapsed">;
  attemptsMax: number;
  /** Of one address over all accounts. */
  addressAttemptsMax: number;
}): Throttle {
  const { clock, attemptsMax, addressAttemptsMax } = deps;
  const counts = new Map<string, { count: number; until: number }>();

  const bump = (key: string, most: number): void => {
    const now = clock.elapsed();
    let entry = counts.get(key);
    if (!entry || entry.until <= now) {
      entry = { count: 0, until: now + windowMs };
      counts.delete(key);
      if (counts.size >= pairsMax) counts.delete(counts.keys().next().value!);
      counts.set(key, entry);
    }
    entry.count++;
    if (entry.count > most)
      throw new Fault("resource_exhausted", "too many attempts, try again later", {
        headers: { "Retry-After": String(Math.max(1, Math.ceil((entry.until - now) / 1_000))) },
      });
  };

  return {
    attempt(account, from) {
      const address = placeOf(from);
      bump(`address\n${address}`, addressAttemptsMax);
      bump(`${account}\n${address}`, attemptsMax);
    },
    succeeded(account, from) {
      const address = placeOf(from);
      counts.delete(`${account}\n${address}`);
      const whole = counts.get(`address\n${address}`);
      if (whole) whole.count--;
    },
  };
}
