import type { Clock } from "../../../kit/clock.ts";
import { Fault, missing, tryAgain } from "../../../kit/fault.ts";
import { openHolderLimit } from "../../../kit/holder-limit.ts";
import { type LogName, minSequenceHeader, sequenceText } from "../../../kit/sequence.ts";
import { ttlCache } from "../../../kit/ttl-cache.ts";
import type { Feeds, Following } from "./feed.ts";
import type { LogEntry } from "./feed-reader.ts";

/** Logs whose epoch a node remembers, and for how long: only a restore changes it, before any node starts. */
const knownLogsMax = 10_000;
const knownMs = 60_000;
/** Callers of a node that wait for a position of one of its logs. */
export const sequenceWaitsMax = 10_000;

interface KnownLog {
  epoch: number;
  /** The highest position that this node knows of. */
  position: number;
}

export type LogSequences = ReturnType<typeof openLogSequences>;

export interface LogSequencesDeps<Event extends LogEntry> {
  log: LogName;
  clock: Clock;
  /** The ends of these environments' logs; a deleted environment is missing. */
  heads: (environmentIds: readonly string[]) => Promise<KnownLog[]>;
  feeds: Pick<Feeds<Event>, "follow">;
}

/** The positions of one kind of log, for those who write and for those who read after them. */
export function openLogSequences<Event extends LogEntry>(deps: LogSequencesDeps<Event>) {
  const { log, clock, heads, feeds } = deps;
  /** What ends each wait. */
  const waiting = new Set<() => void>();
  let isDraining = false;
  const places = openHolderLimit({
    ...{ most: sequenceWaitsMax, all: sequenceWaitsMax },
    ...{ what: "callers that wait for a position of a log", whose: "environment" },
  });
  const logs = ttlCache<KnownLog>({
    clock,
    keptMs: knownMs,
    entriesMax: knownLogsMax,
    async read(environmentId) {
      const [head] = await heads([environmentId]);
      return head && { epoch: head.epoch, position: head.position };
    },
  });

  const textAt = (known: KnownLog, position: number): string => {
    if (position > known.position) known.position = position;
    return sequenceText(log, known.epoch, position);
  };

  async function epochRead(environmentId: string, epoch: number): Promise<void> {
    logs.forget(environmentId);
    requireSame(await logs.get(environmentId), environmentId, epoch);
  }

  /** What the feed says, this node's only reader of the log; it learns of commits at any node. */
  async function followed(
    environmentId: string,
    position: number,
    { timeoutMs, signal }: { timeoutMs: number; signal: AbortSignal },
  ): Promise<void> {
    const { promise: woken, resolve } = Promise.withResolvers<void>();
    const wake = () => resolve();
    waiting.add(wake);
    const cancel = clock.after(timeoutMs, wake);
    signal.addEventListener("abort", wake, { once: true });
    let following: Following | undefined;
    try {
      following = await feeds.follow(environmentId, {
        onEvents: (events) => void ((events.at(-1)?.position ?? 0) >= position && wake()),
        onEnd: wake,
      });
      if (following.position() < position && !signal.aborted && !isDraining) await woken;
      const end = following.position();
      if (end >= position) return;
      throw tryAgain(
        "unavailable",
        `${minSequenceHeader}: the log of ${log} is at ${end}, not at ${position} yet`,
        { field: minSequenceHeader },
      );
    } finally {
      waiting.delete(wake);
      cancel();
      signal.removeEventListener("abort", wake);
      following?.stop();
    }
  }

  return {
    /** What a write of this position is answered; without a promise once the epoch is known. */
    sequenceAt(environmentId: string, position: number): string | undefined | Promise<string | undefined> {
      const known = logs.peek(environmentId);
      if (known) return textAt(known, position);
      return logs.get(environmentId).then(
        (found) => found && textAt(found, position),
        () => undefined,
      );
    },
    /** `failed_precondition` unless the log has this epoch. Without a promise once it is known to have it. */
    requireEpoch(environmentId: string, epoch: number): void | Promise<void> {
      return logs.peek(environmentId)?.epoch === epoch ? undefined : epochRead(environmentId, epoch);
    },
    /** Whether the store has the position, as far as is known without asking. */
    has(environmentId: string, { epoch, position }: { epoch: number; position: number }): boolean {
      const known = logs.peek(environmentId);
      return known !== undefined && known.epoch === epoch && known.position >= position;
    },
    /** Resolves once the log, or this node's feed of it, has the position; `unavailable` after the time. */
    async reached(
      environmentId: string,
      { epoch, position }: { epoch: number; position: number },
      { ofFeed, ...options }: { ofFeed: boolean; timeoutMs: number; signal: AbortSignal },
    ) {
      logs.forget(environmentId);
      const found = requireSame(await logs.get(environmentId), environmentId, epoch);
      if (found.position >= position && !ofFeed) return;
      const leave = places.acquire(environmentId);
      try {
        await followed(environmentId, position, options);
      } finally {
        leave();
      }
    },
    /** Answers all waits as they are. */
    drain() {
      isDraining = true;
      for (const wake of waiting) wake();
    },
  };
}

function requireSame(found: KnownLog | undefined, environmentId: string, epoch: number): KnownLog {
  if (!found) throw missing("environment", environmentId);
  if (found.epoch === epoch) return found;
  throw new Fault(
    "failed_precondition",
    `${minSequenceHeader}: epoch ${epoch} is not the log's, which was restored since`,
    { field: minSequenceHeader, headers: { "Svc-Error-Reason": "epoch_changed" } },
  );
}
