import { createHash } from "node:crypto";
import type { Starter } from "../../../kit/caller.ts";
import { type Instant, parseRfc3339, rfc3339 } from "../../../kit/clock.ts";
import { Fault, invalid, missing } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import { type PageQuery, pageOf, pageSize, pageStart, writeCursor } from "../../../kit/page.ts";
import { storedJson } from "../../../kit/stored-json.ts";
import { withTraceparent } from "../../../kit/trace.ts";
import { ttlCache } from "../../../kit/ttl-cache.ts";
import { type Session, StoreError } from "../../../store/store.ts";
import type { RequireRoom } from "../quotas/service.ts";
import { answerToUsed, type Emitted } from "./answers.ts";
import { type DueDeps, openDueEmits } from "./delayed-due.ts";
import { delayedCountKeptMs, delayedEventsMax, delayMsMax } from "./limits.ts";
import * as rows from "./rows.ts";
import type { DelayedEvent, EventDraft } from "./rules.ts";
import type { EmitOrigin, Events } from "./service.ts";

/** When an event is to be emitted, as its sender says it. */
export interface WhenInput {
  delayMs?: number | undefined;
  /** RFC 3339. */
  at?: string | undefined;
}

/** Events that are emitted later: until then no reader sees them, and they can be cancelled. */
export type DelayedEvents = ReturnType<typeof openDelayedEvents>;

export interface DelayedDeps extends DueDeps {
  ids: Pick<Ids, "next">;
  events: Pick<Events, "emit" | "check">;
  shareEnvironment: (session: Session, environmentId: string) => Promise<void>;
  requireRoom: RequireRoom;
}

const environmentsKept = 1_000;

/** Throws the fault that names the field. */
export function dueAt({ delayMs, at }: WhenInput, now: Instant): Instant {
  if (delayMs !== undefined && at !== undefined) throw invalid("at", "cannot be combined with delayMs");
  if (delayMs !== undefined) {
    if (delayMs < 0 || delayMs > delayMsMax) throw invalid("delayMs", `must be from 0 to ${delayMsMax}`);
    return now + delayMs;
  }
  const due = parseRfc3339(at ?? "");
  if (due === undefined) throw invalid("at", "must be RFC 3339");
  if (due - now > delayMsMax) throw invalid("at", `must be at most ${delayMsMax} ms from now`);
  return Math.max(now, due);
}

export function openDelayedEvents(deps: DelayedDeps) {
  const { store, clock, ids, events } = deps;
  const due = openDueEmits(deps);
  const counts = ttlCache({
    ...{ clock, keptMs: delayedCountKeptMs, entriesMax: environmentsKept },
    read: async (environmentId: string) => ({
      count: await rows.countDelayed(store, environmentId, delayedEventsMax),
    }),
  });

  return {
    /**
     * A repeated idempotency key answers the first event: the one that was emitted, or the one that waits.
     * `already_exists` for a key that names something else.
     */
    async schedule(draft: EventDraft, when: WhenInput, origin: EmitOrigin): Promise<Emitted> {
      const { environmentId } = origin;
      const now = clock.now();
      const row = {
        ...rowOf(draft, origin),
        id: idOf(draft, environmentId),
        due_at: dueAt(when, now),
        created_at: now,
      };
      const used = await answerToUsed(store, environmentId, draft);
      if (used instanceof Fault) throw used;
      if (used) return used;
      await events.check(draft, origin);
      if (((await counts.get(environmentId))?.count ?? 0) >= delayedEventsMax)
        throw new Fault(
          "resource_exhausted",
          `at most ${delayedEventsMax} delayed events in one environment`,
        );
      const bytes = rows.bytesOf(row);
      await deps.requireRoom(environmentId, bytes, async () =>
        (await rows.findDelayed(store, environmentId, row.id)) ? 0 : bytes,
      );
      try {
        await store.write(async (session) => {
          await deps.shareEnvironment(session, environmentId);
          await rows.insertDelayed(session, row);
        });
        return waiting(row);
      } catch (error) {
        const isTaken = error instanceof StoreError && error.trouble === "unique";
        const first = isTaken ? await rows.findDelayed(store, environmentId, row.id) : undefined;
        if (first) return waiting(first);
        throw error;
      }
    },

    /** By time. */
    async list(environmentId: string, query: PageQuery) {
      const size = pageSize(query.limit);
      const { after } = pageStart(query);
      const found = await rows.listDelayed(store, environmentId, { after, limit: size + 1 });
      const page = pageOf(found, size, (last) => writeCursor({ at: last.due_at, id: last.id }));
      return { items: page.items.map(shown), nextCursor: page.nextCursor };
    },

    /** `permit` is asked before anything is changed. `failed_precondition` once its time has come. */
    async cancel(environmentId: string, id: string, permit: (event: DelayedEvent) => Promise<void>) {
      const row = await rows.findDelayed(store, environmentId, id);
      if (!row) throw missing("delayed event", id);
      await permit(shown(row));
      if (await store.write((session) => rows.deleteDelayed(session, environmentId, id))) return;
      throw new Fault(
        "failed_precondition",
        `delayed event ${id} is being emitted since ${rfc3339(row.due_at)}`,
      );
    },

    ...due,
  };

  function idOf({ idempotencyKey }: EventDraft, environmentId: string): string {
    if (idempotencyKey === null) return ids.next("dly");
    const text = JSON.stringify([environmentId, idempotencyKey]);
    return `dly_${createHash("sha256").update(text).digest("hex").slice(0, 26)}`;
  }
}

const waiting = (row: rows.ListedDelay): Emitted => ({
  eventId: "",
  runIds: [],
  position: undefined,
  delayed: shown(row),
});

const shown = ({ id, name, due_at, created_at, sender }: rows.ListedDelay): DelayedEvent => ({
  ...{ id, name },
  dueAt: due_at,
  createdAt: created_at,
  sentBy: storedJson<Starter | null>(sender ?? "null")?.id ?? "",
});

const rowOf = (draft: EventDraft, { environmentId, runId, traceparent, sender }: EmitOrigin) => ({
  sender: sender === undefined ? null : JSON.stringify(sender),
  environment_id: environmentId,
  name: draft.name,
  version: draft.version,
  data: draft.data,
  metadata: withTraceparent(draft.metadata, traceparent),
  idempotency_key: draft.idempotencyKey,
  run_id: runId ?? null,
  start_refused: draft.startRefused ? 1 : 0,
});
