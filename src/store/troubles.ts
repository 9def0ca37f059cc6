import type { Clock } from "../kit/clock.ts";
import type { Log } from "../kit/log.ts";
import { StoreError } from "./store.ts";

/** How often a trouble that lasts is logged again. */
const toldEveryMs = 10_000;
/** A trouble is over when the database can be written and nothing has failed for so long. */
const quietMs = 1_000;
/** Errors that were wrapped on their way are followed so far. */
const causesMax = 5;

/** A line of requests has no error, but it is one of them. */
const refusedRequest = "request.answered";
const refusedStatus = 503;

export type Troubles = ReturnType<typeof watchTroubles>;

export interface TroublesOptions {
  clock: Pick<Clock, "elapsed">;
  log: Log;
  /** Connections that were tried so far, where there are any. */
  attempts?: () => number;
}

interface LoggedTrouble {
  since: number;
  toldAt: number;
  failedAt: number;
  attemptsBefore: number;
  /** Lines that were not written, by their events. */
  lines: Record<string, number>;
}

/**
 * For a database in trouble the log has one line when it begins, one every ten seconds and one when it ends.
 * Each counts what requests, loops and workers met meanwhile: a thousand lines a second hide that one fact.
 */
export function watchTroubles({ clock, log, attempts = () => 0 }: TroublesOptions) {
  let trouble: LoggedTrouble | undefined;
  let isAway = false;
  const listeners: ((isAway: boolean) => void)[] = [];

  const facts = (one: LoggedTrouble, now: number) => ({
    ms: Math.round(now - one.since),
    attempts: attempts() - one.attemptsBefore,
    unwritten: one.lines,
  });

  const failed = (error: unknown, event?: string) => {
    const now = clock.elapsed();
    if (!trouble) {
      trouble = { since: now, toldAt: now, failedAt: now, attemptsBefore: attempts(), lines: {} };
      log.warn("store.trouble_began", { first: event, error });
      return;
    }
    trouble.failedAt = now;
    if (event !== undefined) trouble.lines[event] = (trouble.lines[event] ?? 0) + 1;
    if (now - trouble.toldAt < toldEveryMs) return;
    trouble.toldAt = now;
    log.warn("store.trouble", { ...facts(trouble, now), error });
    trouble.lines = {};
  };

  const at = (severity: keyof Log) => (event: string, fields?: Record<string, unknown>) => {
    const error = fields && troubleIn(fields);
    const isRefused = trouble && event === refusedRequest && fields?.status === refusedStatus;
    if (error || isRefused) failed(error, event);
    else log[severity](event, fields);
  };

  return {
    /** As the log below it, but that lines about the database in trouble are counted instead. */
    log: { debug: log.debug, info: at("info"), warn: at("warn"), error: at("error") },
    /** What a look at the database came to; undefined when it can be written. */
    looked(error: unknown) {
      const wasAway = isAway;
      isAway = error !== undefined;
      if (isAway !== wasAway) for (const listener of listeners) listener(isAway);
      if (isAway) return failed(error);
      const now = clock.elapsed();
      if (!trouble || now - trouble.failedAt < quietMs) return;
      log.info("store.trouble_over", facts(trouble, now));
      trouble = undefined;
    },
    /** Called when the database cannot be written any more, and when it can be again. */
    onTurn: (listener: (isAway: boolean) => void) => void listeners.push(listener),
    isAway: () => isAway,
  };
}

/** The store's error that caused what a line reports, when nothing can be reached or written. */
function troubleIn(fields: Record<string, unknown>): StoreError | undefined {
  let error = fields.error;
  for (let depth = 0; depth < causesMax && error instanceof Error; depth++) {
    if (error instanceof StoreError)
      return ["unavailable", "full"].includes(error.trouble) ? error : undefined;
    error = error instanceof AggregateError ? error.errors[0] : error.cause;
  }
  return undefined;
}
