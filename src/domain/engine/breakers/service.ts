import type { Clock, Instant } from "../../../kit/clock.ts";
import { invalid } from "../../../kit/fault.ts";
import { purgeSliceMax } from "../../../kit/limits.ts";
import type { Log } from "../../../kit/log.ts";
import type { Store } from "../../../store/store.ts";
import type { Endpoint } from "./rows.ts";
import * as rows from "./rows.ts";

/** Transport failures in a row that open a breaker, and how long it is open before one call is tried. */
const breakerFailsMax = 5;
const breakerOpenMs = 30_000;
const breakerForgottenMs = 24 * 60 * 60 * 1000;

export type { Endpoint } from "./rows.ts";

export interface Breaker {
  key: string;
  functionId: string;
  endpoint: string;
  /** A breaker under trial stays open until the trial succeeds. */
  state: "open" | "closed";
  consecutiveFails: number;
  lastFailure: Instant | undefined;
}

export interface Breakers {
  list(environmentId: string): Promise<Breaker[]>;
  /** `key`: base64url of `{functionID}|{endpointURL}`. */
  reset(environmentId: string, key: string): Promise<Breaker>;
  /**
   * `closed`: calls are allowed. `open`: none is. `trial`: one call, by this node alone. Answers from memory,
   * which is at most a second old.
   */
  admits(endpoint: Endpoint): Promise<"closed" | "open" | "trial">;
  /** The same from memory, without starting a trial. */
  isOpen(endpoint: Endpoint): boolean;
  /** Ends a trial that had no job to call with. */
  untried(endpoint: Endpoint): Promise<void>;
  failed(endpoint: Endpoint): Promise<void>;
  /**
   * Writes only for endpoints with failures. A call that began before the breaker opened is ignored: it says
   * nothing about the endpoint now.
   */
  succeeded(endpoint: Endpoint, begunAt: Instant): Promise<void>;
  /**
   * The tick of loop `breakers.look`: reads the failures that other nodes counted; true when a breaker
   * changed.
   */
  lookOnce(): Promise<boolean>;
  /** Part of the duty `retention`. */
  forgetOnce(write: Store["write"]): Promise<void>;
}

const keyOf = ({ environmentId, functionId, endpointUrl }: Endpoint): string =>
  `${environmentId}\n${functionId}\n${endpointUrl}`;
const publicKey = (functionId: string, endpointUrl: string): string => `${functionId}|${endpointUrl}`;
const knownMax = 100_000;
const trialMs = 60_000;

/**
 * Circuit breakers of push endpoints, shared by all nodes: the store has one row for each endpoint with
 * failures.
 */
export function openBreakers({ store, clock, log }: { store: Store; clock: Clock; log: Log }): Breakers {
  let known = new Map<string, rows.BreakerRow>();
  /** Keys that this node changed since a look began: that look may have read older rows of them. */
  const seenMeanwhile = new Set<string>();

  const learn = (key: string, row: rows.BreakerRow | undefined) => {
    seenMeanwhile.add(key);
    if (row) known.set(key, row);
    else known.delete(key);
  };

  const shown = (row: rows.BreakerRow): Breaker => ({
    key: publicKey(row.function_id, row.endpoint_url),
    functionId: row.function_id,
    endpoint: row.endpoint_url,
    state: row.opened_at === null ? "closed" : "open",
    consecutiveFails: row.fails,
    lastFailure: row.last_failure_at,
  });

  return {
    list: async (environmentId) => (await rows.breakersOf(store, environmentId)).map(shown),

    async reset(environmentId, key) {
      const text = readKey(key);
      const bar = text.indexOf("|");
      const [functionId, endpointUrl] = [text.slice(0, bar), text.slice(bar + 1)];
      const endpoint = { environmentId, functionId, endpointUrl };
      await store.write((session) => rows.forget(session, endpoint));
      learn(keyOf(endpoint), undefined);
      return {
        key: text,
        functionId,
        endpoint: endpointUrl,
        state: "closed",
        consecutiveFails: 0,
        lastFailure: undefined,
      };
    },

    async admits(endpoint) {
      const row = known.get(keyOf(endpoint));
      if (!row || row.opened_at === null) return "closed";
      const at = clock.now();
      if (row.opened_at + breakerOpenMs > at || (row.trial_until ?? 0) > at) return "open";
      const until = at + trialMs;
      const claimed = await store.write((session) =>
        rows.claimTrial(session, endpoint, { at, openedBefore: at - breakerOpenMs, until }),
      );
      if (claimed) return "trial";
      // Another node has the trial, or closed the breaker: the next look reads which.
      row.trial_until = at + 1_000;
      return "open";
    },

    isOpen(endpoint) {
      const row = known.get(keyOf(endpoint));
      return row !== undefined && row.opened_at !== null;
    },

    async untried(endpoint) {
      await store.write((session) => rows.dropTrial(session, endpoint));
      const row = known.get(keyOf(endpoint));
      if (row) row.trial_until = null;
    },

    async failed(endpoint) {
      const at = clock.now();
      const row = await store.write((session) =>
        rows.noteFailure(session, endpoint, { at, most: breakerFailsMax }),
      );
      if (row.opened_at === at && row.fails === breakerFailsMax)
        log.warn("breaker.opened", { functionId: row.function_id, environmentId: row.environment_id });
      learn(keyOf(endpoint), row);
    },

    async succeeded(endpoint, begunAt) {
      const key = keyOf(endpoint);
      if (!known.has(key)) return;
      const gone = await store.write((session) => rows.noteSuccess(session, endpoint, begunAt));
      // No row was deleted: it is open, or another node deleted it. The next look reads which.
      if (gone > 0) learn(key, undefined);
    },

    async lookOnce() {
      seenMeanwhile.clear();
      const list = await rows.allBreakers(store, knownMax);
      const next = new Map(
        list.map((row) => [
          keyOf({
            environmentId: row.environment_id,
            functionId: row.function_id,
            endpointUrl: row.endpoint_url,
          }),
          row,
        ]),
      );
      for (const key of seenMeanwhile) {
        const row = known.get(key);
        if (row) next.set(key, row);
        else next.delete(key);
      }
      const changed =
        next.size !== known.size ||
        [...next].some(([key, row]) => (known.get(key)?.opened_at === null) !== (row.opened_at === null));
      known = next;
      return changed;
    },

    async forgetOnce(write) {
      const before = clock.now() - breakerForgottenMs;
      while (
        (await write((session) => rows.forgetBreakers(session, before, purgeSliceMax))) === purgeSliceMax
      );
    },
  };
}

function readKey(key: string): string {
  const text = /^[A-Za-z0-9_-]+$/.test(key) ? Buffer.from(key, "base64url").toString() : "";
  if (!text.includes("|") || Buffer.from(text).toString("base64url") !== key)
    throw invalid("key", "must be unpadded base64url of {functionID}|{endpointURL}");
  return text;
}
