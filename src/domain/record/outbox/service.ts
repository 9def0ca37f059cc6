import { backoff } from "../../../kit/backoff.ts";
import { missing } from "../../../kit/fault.ts";
import { purgeSliceMax } from "../../../kit/limits.ts";
import type { Basics, LeaderWrite, Session } from "../../../store/store.ts";
import {
  deadLetterKeptMs,
  deadLettersDefault,
  outboxRetryMsMax,
  outboxRetryMsMin,
  outboxSendMs,
} from "./limits.ts";
import { openOutboxMeters } from "./meters.ts";
import { openRelay } from "./relay.ts";
import * as rows from "./rows.ts";
import {
  deadFrame,
  type EntryDraft,
  type EntryKind,
  type GivenUpKind,
  type LetterKind,
  type OutboxFrame,
} from "./rules.ts";
import { openSender, type Send, textOf } from "./sender.ts";

export type { OutboxRow as OutboxEntry } from "./rows.ts";
export type { EntryDraft, OutboxFrame } from "./rules.ts";
export { type Send, tooLarge } from "./sender.ts";

export interface Outbox {
  /**
   * Inserts an entry in the transaction of its fact. Call the answer after the commit: it sends the entry at
   * once and deletes it. When that fails, the relay on the leader sends it later.
   */
  enqueue(session: Session, draft: EntryDraft): Promise<() => void>;
  /** Inserts an entry whose first try was refused already. */
  refused(session: Session, draft: EntryDraft, error: Error): Promise<void>;
  /** Inserts dead letters of what no bus waits for; call the answer after the commit. */
  bury(
    session: Session,
    letters: readonly { draft: EntryDraft; error: Error; attempts?: number }[],
  ): Promise<() => void>;
  /** Newest first. */
  deadLetters(
    environmentId: string,
    page: { limit?: number; offset?: number },
  ): Promise<{ items: rows.OutboxRow[]; limit: number; offset: number }>;
  /**
   * Throws `not_found` when the event has no dead letter. A delayed event is emitted and a group gets its
   * delivery again, once `permit` allows the topic; what refuses it is thrown, and it stays a dead letter.
   */
  requeue(environmentId: string, eventId: string, permit: PermitName): Promise<void>;
  /** Who does again what was given up, from its dead letter; asked by `requeue`. */
  redoneBy(kind: GivenUpKind, redo: Redo): void;
  discard(environmentId: string, eventId: string): Promise<void>;
  /** The tick of `outbox.relay`, on the node that leads `outbox`. */
  relayOnce(write: LeaderWrite): Promise<{ againInMs?: number }>;
  /** The tick of `outbox.forget`. */
  forgetOnce(write: LeaderWrite): Promise<void>;
  /** Resolves once no send is under way. */
  settled(): Promise<void>;
}

export type Redo = (letter: rows.OutboxRow, permit: PermitName) => Promise<void>;

/** Throws where the caller may not do this to what has the name. */
export type PermitName = (name: string) => Promise<void>;

export interface OutboxDeps extends Basics<"store" | "clock" | "ids" | "log" | "metrics"> {
  senders: Record<EntryKind, Send>;
  attemptsMax: number;
  /** The largest message that the bus accepts, in bytes. */
  payloadBytesMax: number;
  /** Called after the commit. */
  announce: (frame: OutboxFrame) => void;
  /** Wakes the relay within this time. */
  relayIn: (ms: number) => void;
}

export function openOutbox(deps: OutboxDeps): Outbox {
  const { store, clock, ids, log, announce } = deps;
  const redos = new Map<string, Redo>();
  const growing = backoff({ minMs: outboxRetryMsMin, maxMs: outboxRetryMsMax, chance: ids.chance });
  const pauseMs = (attempts: number) => Math.round(growing(attempts));
  const meters = openOutboxMeters(deps);
  const tryOnce = openSender({ ...deps, meters });
  const relayOnce = openRelay({ ...deps, meters, pauseMs, tryOnce });
  const underway = new Set<Promise<void>>();

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

  async function sendNow(entry: rows.OutboxRow): Promise<void> {
    try {
      const outcome = await tryOnce(entry);
      if (outcome !== "sent") return deps.relayIn(outboxSendMs);
      await store.write((session) => rows.deleteEntries(session, [entry.id]));
    } catch (error) {
      // The entry is still stored: the relay sends it, perhaps a second time.
      log.debug("outbox.left_to_relay", { id: entry.id, error });
    }
  }

  return {
    async enqueue(session, draft) {
      const row = rowOf(draft, outboxSendMs);
      await rows.insertEntries(session, [row]);
      return () => {
        const sending = sendNow(row);
        underway.add(sending);
        void sending.finally(() => underway.delete(sending));
      };
    },

    async refused(session, draft, error) {
      meters.refused(draft.kind).add();
      const row = { ...rowOf(draft, pauseMs(1)), attempts: 1, last_error: textOf(error) };
      await rows.insertEntries(session, [row]);
    },

    async bury(session, letters) {
      const dead = letters.map(({ draft, error, attempts = 1 }) => {
        const row = { ...rowOf(draft, 0), attempts, last_error: textOf(error) };
        return { ...row, dead_at: row.created_at };
      });
      await rows.insertEntries(session, dead);
      return () => {
        for (const row of dead) {
          meters.died(row.kind as LetterKind).add();
          announce(deadFrame(row, row.created_at));
        }
      };
    },

    async deadLetters(environmentId, page) {
      const { limit = deadLettersDefault, offset = 0 } = page;
      const { items, left } = await rows.deadLetters(store, environmentId, { limit, offset });
      return { items, limit: left > 0 ? items.length : limit, offset };
    },

    async requeue(environmentId, eventId, permit) {
      const at = clock.now();
      const givenUp = await rows.givenUpLetters(store, environmentId, eventId);
      for (const letter of givenUp) {
        await permit(letter.topic);
        await redos.get(letter.kind)!(letter, permit);
        await store.write((session) => rows.deleteLetter(session, letter.id));
      }
      const count = await store.write((session) => rows.requeue(session, environmentId, eventId, at));
      if (count + givenUp.length === 0) throw missing("dead letter", eventId);
      deps.relayIn(0);
      announce({ change: "requeued", environmentId, eventId, at });
    },

    redoneBy: (kind, redo) => void redos.set(kind, redo),

    async discard(environmentId, eventId) {
      const count = await store.write((session) => rows.discard(session, environmentId, eventId));
      if (count === 0) throw missing("dead letter", eventId);
      announce({ change: "discarded", environmentId, eventId, at: clock.now() });
    },

    relayOnce,

    async forgetOnce(write) {
      const before = clock.now() - deadLetterKeptMs;
      while ((await write((session) => rows.forgetDead(session, before, purgeSliceMax))) === purgeSliceMax);
    },

    async settled() {
      await Promise.all(underway);
    },
  };
}
