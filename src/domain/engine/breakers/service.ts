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

export type Breakers = ReturnType<typeof openBreakers>;

const keyOf = ({ environmentId, functionId, endpointUrl }: Endpoint): string =>
  `${environmentId}\n${functionId}\n${endpointUrl}`;
const keyOfRow = ({ environment_id, function_id, endpoint_url }: rows.BreakerRow): string =>
  keyOf({ environmentId: environment_id, functionId: function_id, endpointUrl: endpoint_url });
const publicKey = (functionId: string, endpointUrl: string): string => `${functionId}|${endpointUrl}`;
const knownMax = 100_000;
const trialMs = 60_000;

const shown = (row: rows.BreakerRow): Breaker => ({
  key: publicKey(row.function_id, row.endpoint_url),
  functionId: row.function_id,
  endpoint: row.endpoint_url,
  state: row.opened_at === null ? "closed" : "open",
  consecutiveFails: row.fails,
  lastFailure: row.last_failure_at,
});

/**
 * Circuit breakers of push endpoints, shared by all nodes: the store has one row for each endpoint with
 * failures.
 */
export function openBreakers({ store, clock, log }: { store: Store; clock: Clock; log: Log }) {
  let known = new Map<string, rows.BreakerRow>();
  /** Keys that this node changed since a look began: that look may have read older rows of them. */
  const seenMeanwhile = new Set<string>();

  const learn = (key: string, row: rows.BreakerRow | undefined) => {
    seenMeanwhile.add(key);
    if (row) known.set(key, row);
    else known.delete(key);
  };

  return {
    list: async (environmentId: string) => (await rows.breakersOf(store, environmentId)).map(shown),

    /** `key`: base64url of `{functionID}|{endpointURL}`. */
    async reset(environmentId: string, key: string): Promise<Breaker> {
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

    /**
     * `closed`: calls are allowed. `open`: none is. `trial`: one call, by this node alone. Answers from
     * memory, which is at most a second old.
     */
    async admits(endpoint: Endpoint): Promise<"closed" | "open" | "trial"> {
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

    /** The same from memory, without starting a trial. */
    isOpen(endpoint: Endpoint): boolean {
      const row = known.get(keyOf(endpoint));
      return row !== undefined && row.opened_at !== null;
    },

    /** Ends a trial that had no job to call with. */
    async untried(endpoint: Endpoint) {
      await store.write((session) => rows.dropTrial(session, endpoint));
      const row = known.get(keyOf(endpoint));
      if (row) row.trial_until = null;
    },

    async failed(endpoint: Endpoint) {
      const at = clock.now();
      const row = await store.write((session) =>
        rows.noteFailure(session, endpoint, { at, most: breakerFailsMax }),
      );
      if (row.opened_at === at && row.fails === breakerFailsMax)
        log.warn("breaker.opened", { functionId: row.function_id, environmentId: row.environment_id });
      learn(keyOf(endpoint), row);
    },

    /**
     * Writes only for endpoints with failures. A call that began before the breaker opened is ignored: it
     * says nothing about the endpoint now.
     */
    async succeeded(endpoint: Endpoint, begunAt: Instant) {
      const key = keyOf(endpoint);
      if (!known.has(key)) return;
      const gone = await store.write((session) => rows.noteSuccess(session, endpoint, begunAt));
      // No row was deleted: it is open, or another node deleted it. The next look reads which.
      if (gone > 0) learn(key, undefined);
    },

    /** The tick of loop `breakers.look`: reads what other nodes counted; true when a breaker changed. */
    async lookOnce(): Promise<boolean> {
      seenMeanwhile.clear();
      const list = await rows.allBreakers(store, knownMax);
      const next = new Map(list.map((row) => [keyOfRow(row), row]));
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

    /** Part of the duty `retention`. */
    async forgetOnce(write: Store["write"]) {
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
