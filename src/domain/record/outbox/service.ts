import { backoff } from "../../../kit/backoff.ts";
import type { Clock } from "../../../kit/clock.ts";
import { missing } from "../../../kit/fault.ts";
import { integrityRowsMax, purgeSliceMax } from "../../../kit/limits.ts";
import type { Basics, LeaderWrite, Session, Store } from "../../../store/store.ts";
import type { Past } from "../../log/core/feed-reader.ts";
import { violationsOf } from "../integrity/rules.ts";
import type { IntegrityCheck } from "../integrity/service.ts";
import {
  deadLetterKeptMs,
  deadLettersDefault,
  outboxOverdueMs,
  outboxRetryMsMax,
  outboxRetryMsMin,
  outboxSendMs,
  unmirroredListedMax,
} from "./limits.ts";
import { openOutboxMeters, openRelay, openSender, type Send, textOf } from "./relay.ts";
import * as rows from "./rows.ts";
import {
  deadFrame,
  type EntryDraft,
  type EntryKind,
  type GivenUpKind,
  type LetterKind,
  type OutboxFrame,
} from "./rules.ts";

export { type Send, tooLarge } from "./relay.ts";
export type { OutboxRow as OutboxEntry } from "./rows.ts";
export type { EntryDraft, OutboxFrame } from "./rules.ts";

export type Outbox = ReturnType<typeof openOutbox>;

export type Redo = (letter: rows.OutboxRow, permit: PermitName) => Promise<void>;

/** Whether the caller may not know of the letter. */
export type HidesLetter = (letter: rows.OutboxRow) => Promise<boolean>;

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

const openRowOf =
  ({ ids, clock }: OutboxDeps) =>
  (draft: EntryDraft, dueInMs: number): rows.OutboxRow => {
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

export function openOutbox(deps: OutboxDeps) {
  const { store, clock, ids, log, announce } = deps;
  const redos = new Map<string, Redo>();
  const growing = backoff({ minMs: outboxRetryMsMin, maxMs: outboxRetryMsMax, chance: ids.chance });
  const pauseMs = (attempts: number) => Math.round(growing(attempts));
  const meters = openOutboxMeters(deps);
  const tryOnce = openSender({ ...deps, meters });
  const relayOnce = openRelay({ ...deps, meters, pauseMs, tryOnce });
  const rowOf = openRowOf(deps);
  const underway = new Set<Promise<void>>();

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

  async function shownLetters(environmentId: string, eventId: string, hides: HidesLetter) {
    const shown: rows.OutboxRow[] = [];
    for (const letter of await rows.lettersOf(store, environmentId, eventId))
      if (!(await hides(letter))) shown.push(letter);
    if (shown.length === 0) throw missing("dead letter", eventId);
    return shown;
  }

  return {
    /**
     * Inserts an entry in the transaction of its fact. Call the answer after the commit: it sends the entry
     * at once and deletes it. When that fails, the relay on the leader sends it later.
     */
    async enqueue(session: Session, draft: EntryDraft): Promise<() => void> {
      const row = rowOf(draft, outboxSendMs);
      await rows.insertEntries(session, [row]);
      return () => {
        const sending = sendNow(row);
        underway.add(sending);
        void sending.finally(() => underway.delete(sending));
      };
    },

    /** Inserts an entry whose first try was refused already. */
    async refused(session: Session, draft: EntryDraft, error: Error) {
      meters.refused(draft.kind).add();
      const row = { ...rowOf(draft, pauseMs(1)), attempts: 1, last_error: textOf(error) };
      await rows.insertEntries(session, [row]);
    },

    /** Inserts dead letters of what no bus waits for; call the answer after the commit. */
    async bury(session: Session, letters: readonly { draft: EntryDraft; error: Error; attempts?: number }[]) {
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

    /** Newest first. */
    async deadLetters(environmentId: string, page: { limit?: number; offset?: number }) {
      const { limit = deadLettersDefault, offset = 0 } = page;
      const { items, left } = await rows.deadLetters(store, environmentId, { limit, offset });
      return { items, limit: left > 0 ? items.length : limit, offset };
    },

    /**
     * Throws `not_found` when the event has no dead letter that the caller sees. A delayed event is emitted
     * and a group gets its delivery again, once `permit` allows the topic; what refuses it is thrown, and it
     * stays a dead letter.
     */
    async requeue(environmentId: string, eventId: string, hides: HidesLetter, permit: PermitName) {
      const at = clock.now();
      const letters = await shownLetters(environmentId, eventId, hides);
      const givenUp = letters.filter(({ kind }) => redos.has(kind));
      for (const letter of givenUp) {
        await permit(letter.topic);
        await redos.get(letter.kind)!(letter, permit);
        await store.write((session) => rows.deleteLetters(session, environmentId, [letter.id]));
      }
      const ids = letters.flatMap(({ kind, id }) => (redos.has(kind) ? [] : [id]));
      const count = await store.write((session) => rows.requeue(session, environmentId, ids, at));
      if (count + givenUp.length === 0) throw missing("dead letter", eventId);
      deps.relayIn(0);
      announce({ change: "requeued", environmentId, eventId, at });
    },

    /** Who does again what was given up, from its dead letter; asked by `requeue`. */
    redoneBy: (kind: GivenUpKind, redo: Redo) => void redos.set(kind, redo),

    async discard(environmentId: string, eventId: string, hides: HidesLetter) {
      const ids = (await shownLetters(environmentId, eventId, hides)).map(({ id }) => id);
      const count = await store.write((session) => rows.deleteLetters(session, environmentId, ids));
      if (count === 0) throw missing("dead letter", eventId);
      announce({ change: "discarded", environmentId, eventId, at: clock.now() });
    },

    /** The tick of `outbox.relay`, on the node that leads `outbox`. */
    relayOnce,

    /** The tick of `outbox.forget`. */
    async forgetOnce(write: LeaderWrite) {
      const before = clock.now() - deadLetterKeptMs;
      while ((await write((session) => rows.forgetDead(session, before, purgeSliceMax))) === purgeSliceMax);
    },

    /** Resolves once no send is under way. */
    async settled() {
      await Promise.all(underway);
    },
  };
}

/**
 * Entries that have been due for more than a minute; with a mirror also events that it has not sent in that
 * time.
 */
export function outboxChecks({
  store,
  clock,
  mirrored,
}: {
  store: Store;
  clock: Pick<Clock, "now">;
  /** Undefined while the mirror is off. */
  mirrored: Pick<Past, "between"> | undefined;
}): IntegrityCheck[] {
  const overdue: IntegrityCheck = {
    name: "outbox.overdue",
    about:
      "Outbox entries that have been due for more than a minute: the bus is away, or no node leads `outbox`.",
    async run(environmentId) {
      const before = clock.now() - outboxOverdueMs;
      return violationsOf(await rows.overdue(store, environmentId, before, integrityRowsMax));
    },
  };
  if (!mirrored) return [overdue];
  /** The first of the events that the mirror has yet to send, as far as they are overdue. */
  async function unmirrored(environmentId: string, most: number) {
    const place = await rows.mirrorProgressOf(store, environmentId);
    if (!place || place.head <= (place.position ?? 0)) return { events: [], head: 0 };
    const range = { after: place.position ?? 0, last: place.head };
    const before = clock.now() - outboxOverdueMs;
    const events = (await mirrored!.between(environmentId, range, most)).filter(({ at }) => at < before);
    return { events, head: place.head };
  }
  const behind: IntegrityCheck = {
    name: "outbox.unmirrored",
    about: "Events that the mirror has not sent to the bus after a minute.",
    async run(environmentId) {
      const { events, head } = await unmirrored(environmentId, 1);
      const [first] = events;
      if (!first) return { count: 0, oldest: null };
      return {
        count: Math.min(integrityRowsMax, head - first.position + 1),
        oldest: { id: first.id, at: first.at },
      };
    },
    async rows(environmentId) {
      const { events } = await unmirrored(environmentId, unmirroredListedMax);
      return (
        violationsOf(events.map(({ id, at, position, name }) => ({ id, at, position, event: name }))).rows ??
        []
      );
    },
  };
  return [overdue, behind];
}
