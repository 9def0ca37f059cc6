import { BusError } from "../../../bus/bus.ts";
import { gaugeKeptMs, gaugeWaitMsMax } from "../../../kit/limits.ts";
import { roundRobin, type Slice, workOn } from "../../../kit/round-robin.ts";
import { cachedQuery } from "../../../kit/ttl-cache.ts";
import type { Basics, LeaderWrite } from "../../../store/store.ts";
import { outboxErrorCharsMax, outboxSliceMax } from "./limits.ts";
import type { OutboxRow } from "./rows.ts";
import * as rows from "./rows.ts";
import { deadFrame, type EntryKind, entryKinds, type OutboxFrame } from "./rules.ts";

type OutboxMeters = ReturnType<typeof openOutboxMeters>;

/** Counters of tries by kind, and gauges of what waits, which one query reads before the metrics are. */
export function openOutboxMeters({ store, clock, metrics }: Basics<"store" | "clock" | "metrics">) {
  const labels = ["kind"] as const;
  const sent = metrics.counter({
    name: "svc_outbox_told_total",
    help: "Outbox entries that reached the bus.",
    labels,
  });
  const refused = metrics.counter({
    name: "svc_outbox_refused_total",
    help: "Tries of outbox entries that were refused.",
    labels,
  });
  const died = metrics.counter({
    name: "svc_outbox_dead_lettered_total",
    help: "Outbox entries that ran out of attempts.",
    labels,
  });
  for (const kind of entryKinds) for (const count of [sent, refused, died]) count(kind);
  const waiting = metrics.gauge({
    name: "svc_outbox_waiting",
    help: "Outbox entries that wait to be sent.",
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

  return { sent, refused, died };
}

/**
 * Sends an entry out. Rejects with a BusError: `disconnected`, `timeout` or `no_responders` when nothing can
 * be sent right now, which spends no attempt; anything else refuses this entry and spends one.
 */
export type Send = (entry: OutboxRow) => Promise<void>;

const passing: ReadonlySet<BusError["trouble"]> = new Set(["disconnected", "timeout", "no_responders"]);
const isPassing = (error: unknown): boolean => error instanceof BusError && passing.has(error.trouble);

export const textOf = (error: unknown): string =>
  (error instanceof Error ? error.message : String(error)).slice(0, outboxErrorCharsMax);

export const tooLarge = (payload: string, bytesMax: number): BusError | undefined => {
  const bytes = Buffer.byteLength(payload);
  return bytes > bytesMax
    ? new BusError("refused", `the message has ${bytes} bytes, SVC_BUS_PAYLOAD_MAX allows ${bytesMax}`)
    : undefined;
};

/** What one try came to: sent, refused by the bus, or the bus could not be reached. */
export type SendOutcome = "sent" | { refused: unknown } | { passing: unknown };

type TryOnce = (entry: OutboxRow) => Promise<SendOutcome>;

/** Tries to send one entry by its kind's sender; never rejects. */
export function openSender(deps: {
  senders: Record<EntryKind, Send>;
  meters: OutboxMeters;
  payloadBytesMax: number;
}): TryOnce {
  const { senders, meters, payloadBytesMax } = deps;
  return async (entry) => {
    const kind = entry.kind as EntryKind;
    try {
      const refusal = tooLarge(entry.payload, payloadBytesMax);
      if (refusal) throw refusal;
      await senders[kind](entry);
      meters.sent(kind).add();
      return "sent";
    } catch (error) {
      if (isPassing(error)) return { passing: error };
      meters.refused(kind).add();
      return { refused: error };
    }
  };
}

/** The relay tries one kind for at most this long before the other kind's turn. */
const relayMsMax = 1_000;

interface Tries {
  sent: rows.OutboxRow[];
  refused: { row: rows.OutboxRow; cause: unknown; error: string; dueAt: number; deadAt: number | null }[];
  /** The bus cannot be reached: the others were not tried. */
  isCut: boolean;
}

export interface RelayDeps extends Basics<"store" | "clock" | "log"> {
  meters: OutboxMeters;
  attemptsMax: number;
  /** How long an entry rests after so many refused attempts. */
  pauseMs: (attempts: number) => number;
  tryOnce: TryOnce;
  announce: (frame: OutboxFrame) => void;
}

/** Sends entries that are due, on the node that leads `outbox`. Answers when to run again, if it is known. */
export function openRelay(deps: RelayDeps): (write: LeaderWrite) => Promise<{ againInMs?: number }> {
  const { store, clock, log, meters, attemptsMax, pauseMs, tryOnce, announce } = deps;

  async function tryAll(kind: EntryKind, due: readonly rows.OutboxRow[]): Promise<Tries> {
    const tries: Tries = { sent: [], refused: [], isCut: false };
    for (const row of due) {
      const outcome = await tryOnce(row);
      if (outcome === "sent") tries.sent.push(row);
      else if ("refused" in outcome) {
        const attempts = row.attempts + 1;
        const now = clock.now();
        const deadAt = attempts >= attemptsMax ? now : null;
        const error = textOf(outcome.refused);
        tries.refused.push({ row, cause: outcome.refused, error, dueAt: now + pauseMs(attempts), deadAt });
      } else {
        log.debug("outbox.waits", { kind, error: outcome.passing });
        return { ...tries, isCut: true };
      }
    }
    return tries;
  }

  /** Deletes entries that were sent, and spends an attempt of those that were refused, perhaps their last. */
  async function commitTries(
    kind: EntryKind,
    { sent: gone, refused }: Tries,
    write: LeaderWrite,
  ): Promise<void> {
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
    for (const { row, cause, error, deadAt } of dying) {
      meters.died(kind).add();
      const { id, event_id: eventId, topic } = row;
      log.warn("outbox.dead_lettered", { id, eventId, topic, kind, error: cause });
      const dead = { ...row, attempts: row.attempts + 1, last_error: error };
      announce(deadFrame(dead, deadAt ?? clock.now()));
    }
  }

  /**
   * Tries what is due of one kind, until the bus cannot be reached; answers when to go on, if it is known.
   */
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

  return async (write) => {
    const wishes: number[] = [];
    for (const kind of entryKinds) wishes.push((await relay(kind, write)) ?? Number.POSITIVE_INFINITY);
    const soonest = Math.min(...wishes);
    return Number.isFinite(soonest) ? { againInMs: soonest } : {};
  };
}
