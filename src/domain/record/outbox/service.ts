import { BusError } from "../../../bus/bus.ts";
import { backoff } from "../../../kit/backoff.ts";
import { cachedQuery } from "../../../kit/cached-query.ts";
import type { Clock } from "../../../kit/clock.ts";
import { missing } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import {
  deadLetterKeptMs,
  deadLettersDefault,
  gaugeKeptMs,
  gaugeWaitMsMax,
  outboxErrorCharsMax,
  outboxRetryMsMax,
  outboxRetryMsMin,
  outboxSendMs,
  outboxSliceMax,
  purgeSliceMax,
} from "../../../kit/limits.ts";
import type { Log } from "../../../kit/log.ts";
import type { Metrics } from "../../../kit/metrics.ts";
import { roundRobin, type Slice, workOn } from "../../../kit/round-robin.ts";
import type { Session, Store } from "../../../store/store.ts";
import * as rows from "./rows.ts";
import { type EntryDraft, type EntryKind, entryKinds, type OutboxFrame } from "./rules.ts";

export type { OutboxRow as OutboxEntry } from "./rows.ts";
export type { EntryDraft, OutboxFrame } from "./rules.ts";

/**
 * Hands an entry to the world. Rejects with a BusError: `disconnected`, `timeout` or `no_responders` when nothing can be
 * told right now, which spends no attempt; anything else refuses this entry and spends one.
 */
export type Send = (entry: rows.OutboxRow) => Promise<void>;

/** How the tick of a duty writes: only while its node leads. */
export type LeaderWrite = <T>(work: (session: Session) => Promise<T>) => Promise<T>;

export interface Outbox {
  /**
   * Promises, in the transaction of the fact. What it answers is called after the commit: it tells at once, and takes the
   * promise back when that went well; else the leader does both.
   */
  enqueue(session: Session, draft: EntryDraft): Promise<() => void>;
  /** An entry that was refused at its first try already. */
  refused(session: Session, draft: EntryDraft, error: Error): Promise<void>;
  /** Newest first. */
  deadLetters(
    environmentId: string,
    page: { limit?: number; offset?: number },
  ): Promise<{ items: rows.OutboxRow[]; limit: number; offset: number }>;
  /** Throws `not_found` when the event has no dead letter. */
  requeue(environmentId: string, eventId: string): Promise<void>;
  discard(environmentId: string, eventId: string): Promise<void>;
  /** The tick of `outbox.relay`, on the node that leads `outbox`. */
  relayOnce(write: LeaderWrite): Promise<{ againInMs?: number }>;
  /** The tick of `outbox.forget`. */
  forgetOnce(write: LeaderWrite): Promise<void>;
  /** Resolves once nothing that was begun is on its way. */
  settled(): Promise<void>;
}

export interface OutboxDeps {
  store: Store;
  clock: Clock;
  ids: Ids;
  log: Log;
  metrics: Metrics;
  senders: Record<EntryKind, Send>;
  attemptsMax: number;
  /** Bytes of the largest message. */
  payloadBytesMax: number;
  /** Told after the commit. */
  announce: (frame: OutboxFrame) => void;
  /** Asks the relay to look in so many milliseconds at the latest. */
  relayIn: (ms: number) => void;
}

const passing: ReadonlySet<BusError["trouble"]> = new Set(["disconnected", "timeout", "no_responders"]);
const isPassing = (error: unknown): boolean => error instanceof BusError && passing.has(error.trouble);

const textOf = (error: unknown): string =>
  (error instanceof Error ? error.message : String(error)).slice(0, outboxErrorCharsMax);

export const tooLarge = (payload: string, bytesMax: number): BusError | undefined => {
  const bytes = Buffer.byteLength(payload);
  return bytes > bytesMax
    ? new BusError("refused", `the message has ${bytes} bytes, SVC_BUS_PAYLOAD_MAX allows ${bytesMax}`)
    : undefined;
};

/** One kind is tried for so long before it is the other's turn. */
const relayMsMax = 1_000;

/** What a try came to: told, refused, or not tried to its end. */
type SendOutcome = "told" | { refused: unknown } | { passing: unknown };

export function openOutbox(deps: OutboxDeps): Outbox {
  const { store, clock, ids, log, metrics, attemptsMax, announce } = deps;
  const growing = backoff({ minMs: outboxRetryMsMin, maxMs: outboxRetryMsMax, chance: ids.chance });
  const pauseMs = (attempts: number) => Math.round(growing(attempts));
  const underway = new Set<Promise<void>>();

  const labels = ["kind"] as const;
  const sentCount = metrics.counter({
    name: "svc_outbox_told_total",
    help: "Outbox entries that reached the bus.",
    labels,
  });
  const refusedCount = metrics.counter({
    name: "svc_outbox_refused_total",
    help: "Tries of outbox entries that were refused.",
    labels,
  });
  const died = metrics.counter({
    name: "svc_outbox_dead_lettered_total",
    help: "Outbox entries that ran out of attempts.",
    labels,
  });
  for (const kind of entryKinds) for (const count of [sentCount, refusedCount, died]) count(kind);
  const waiting = metrics.gauge({
    name: "svc_outbox_waiting",
    help: "Outbox entries that wait to be told.",
  })();
  const lag = metrics.gauge({
    name: "svc_outbox_lag_seconds",
    help: "How long the outbox entry that is due longest has been due.",
  })();
  const dead = metrics.gauge({
    name: "svc_outbox_dead_letters",
    help: "Dead letters of all environments.",
  })();
  const ask = () => rows.counts(store, entryKinds);
  const counted = cachedQuery({ clock, keptMs: gaugeKeptMs, waitMsMax: gaugeWaitMsMax, query: ask });
  metrics.beforeReading(async () => {
    const found = await counted();
    waiting.set(found?.waiting);
    dead.set(found?.dead);
    lag.set(found && Math.max(0, clock.now() - (found.oldest ?? clock.now())) / 1000);
  });

  const rowOf = (draft: EntryDraft, dueInMs: number): rows.OutboxRow => {
    const now = clock.now();
    return {
      id: ids.next("ob"),
      environment_id: draft.environmentId,
      event_id: draft.eventId,
      entity_id: draft.entityId ?? null,
      topic: draft.topic,
      kind: draft.kind,
      payload: draft.payload,
      metadata: JSON.stringify(draft.metadata),
      created_at: now,
      attempts: 0,
      due_at: now + dueInMs,
      last_error: null,
      dead_at: null,
    };
  };

  async function tryOnce(entry: rows.OutboxRow): Promise<SendOutcome> {
    const kind = entry.kind as EntryKind;
    try {
      const refusal = tooLarge(entry.payload, deps.payloadBytesMax);
      if (refusal) throw refusal;
      await deps.senders[kind](entry);
      sentCount(kind).add();
      return "told";
    } catch (error) {
      if (isPassing(error)) return { passing: error };
      refusedCount(kind).add();
      return { refused: error };
    }
  }

  async function sendNow(entry: rows.OutboxRow): Promise<void> {
    try {
      const outcome = await tryOnce(entry);
      if (outcome !== "told") return deps.relayIn(outboxSendMs);
      await store.write((session) => rows.deleteEntries(session, [entry.id]));
    } catch (error) {
      // It is still promised: the leader tells it, perhaps once more.
      log.debug("outbox.left_to_relay", { id: entry.id, error });
    }
  }

  interface Tries {
    told: rows.OutboxRow[];
    refused: { row: rows.OutboxRow; error: string; dueAt: number; deadAt: number | null }[];
    /** The bus cannot be reached: the others were not tried. */
    isCut: boolean;
  }

  async function tryAll(kind: EntryKind, due: readonly rows.OutboxRow[]): Promise<Tries> {
    const tries: Tries = { told: [], refused: [], isCut: false };
    for (const row of due) {
      const outcome = await tryOnce(row);
      if (outcome === "told") tries.told.push(row);
      else if ("refused" in outcome) {
        const attempts = row.attempts + 1;
        const now = clock.now();
        const deadAt = attempts >= attemptsMax ? now : null;
        const error = textOf(outcome.refused);
        tries.refused.push({ row, error, dueAt: now + pauseMs(attempts), deadAt });
      } else {
        log.debug("outbox.waits", { kind, error: textOf(outcome.passing) });
        return { ...tries, isCut: true };
      }
    }
    return tries;
  }

  /** Entries that were told leave; those that were refused have spent an attempt, perhaps their last. */
  async function commitTries(kind: EntryKind, { told: gone, refused }: Tries, write: LeaderWrite) {
    if (gone.length + refused.length === 0) return;
    const dying = await write(async (session) => {
      const ids = gone.map(({ id }) => id);
      if (ids.length > 0) await rows.deleteEntries(session, ids);
      const dead: typeof refused = [];
      for (const one of refused) {
        const changed = await rows.spendAttempt(session, one.row, one);
        if (changed > 0 && one.deadAt !== null) dead.push(one);
      }
      return dead;
    });
    for (const { row, error, deadAt } of dying) {
      died(kind).add();
      log.warn("outbox.dead_lettered", { id: row.id, eventId: row.event_id, topic: row.topic, kind, error });
      announce({
        change: "dead_lettered",
        environmentId: row.environment_id,
        eventId: row.event_id,
        outboxId: row.id,
        entityId: row.entity_id ?? "",
        topic: row.topic,
        kind,
        attempts: row.attempts + 1,
        lastError: error,
        at: deadAt ?? clock.now(),
      });
    }
  }

  /** Tries what is due of one kind, until the bus cannot be reached; answers when to go on, if it is known. */
  async function relay(kind: EntryKind, write: LeaderWrite): Promise<number | undefined> {
    let isCut = false;
    let soonest = Number.POSITIVE_INFINITY;
    async function trySlice(slice: Slice) {
      const due = isCut ? [] : await rows.dueEntries(store, kind, clock.now(), slice);
      const tries = await tryAll(kind, due);
      isCut ||= tries.isCut;
      await commitTries(kind, tries, write);
      for (const { deadAt, dueAt } of tries.refused) if (deadAt === null) soonest = Math.min(soonest, dueAt);
      return isCut ? [] : due;
    }
    const work = workOn(trySlice, () => rows.environmentsDueNow(store, kind, clock.now()));
    const isOver = await roundRobin([work], { clock, limit: outboxSliceMax, msMax: relayMsMax });
    if (isCut) return undefined;
    if (!isOver) return 0;
    return Number.isFinite(soonest) ? Math.max(1, soonest - clock.now()) : undefined;
  }

  return {
    async enqueue(session, draft) {
      const row = rowOf(draft, outboxSendMs);
      await rows.insertEntry(session, row);
      return () => {
        const sending = sendNow(row);
        underway.add(sending);
        void sending.finally(() => underway.delete(sending));
      };
    },

    async refused(session, draft, error) {
      refusedCount(draft.kind).add();
      await rows.insertEntry(session, {
        ...rowOf(draft, pauseMs(1)),
        attempts: 1,
        last_error: textOf(error),
      });
    },

    async deadLetters(environmentId, page) {
      const { limit = deadLettersDefault, offset = 0 } = page;
      return { items: await rows.deadLetters(store, environmentId, { limit, offset }), limit, offset };
    },

    async requeue(environmentId, eventId) {
      const at = clock.now();
      const count = await store.write((session) => rows.requeue(session, environmentId, eventId, at));
      if (count === 0) throw missing("dead letter", eventId);
      deps.relayIn(0);
      announce({ change: "requeued", environmentId, eventId, at });
    },

    async discard(environmentId, eventId) {
      const count = await store.write((session) => rows.discard(session, environmentId, eventId));
      if (count === 0) throw missing("dead letter", eventId);
      announce({ change: "discarded", environmentId, eventId, at: clock.now() });
    },

    async relayOnce(write) {
      const wishes: number[] = [];
      for (const kind of entryKinds) wishes.push((await relay(kind, write)) ?? Number.POSITIVE_INFINITY);
      const soonest = Math.min(...wishes);
      return Number.isFinite(soonest) ? { againInMs: soonest } : {};
    },

    async forgetOnce(write) {
      const before = clock.now() - deadLetterKeptMs;
      while ((await write((session) => rows.forgetDead(session, before, purgeSliceMax))) === purgeSliceMax);
    },

    async settled() {
      await Promise.all(underway);
    },
  };
}
