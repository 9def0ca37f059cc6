import { roundRobin, type Slice, workOn } from "../../../kit/round-robin.ts";
import type { Basics, LeaderWrite } from "../../../store/store.ts";
import { outboxSliceMax } from "./limits.ts";
import type { OutboxMeters } from "./meters.ts";
import * as rows from "./rows.ts";
import { deadFrame, type EntryKind, entryKinds, type OutboxFrame } from "./rules.ts";
import { type TryOnce, textOf } from "./sender.ts";

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
