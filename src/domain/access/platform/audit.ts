import { boundedPageOf } from "../../../kit/bounded-look.ts";
import type { Caller } from "../../../kit/caller.ts";
import { purgeSliceMax } from "../../../kit/limits.ts";
import { pageSize, readCursor, writeCursor } from "../../../kit/page.ts";
import type { Basics, Session, Store } from "../../../store/store.ts";
import type { PlatformEvent, PlatformEventFilter } from "./audit-rows.ts";
import * as rows from "./audit-rows.ts";
import type { PlatformEventType } from "./rules.ts";

/** Lines of the platform's audit: how long they are kept, and how many may wait at a node to be written. */
export const platformAuditKeptMs = 366 * 24 * 60 * 60 * 1000;
export const platformAuditWaitingMax = 10_000;

export type { PlatformEvent, PlatformEventFilter } from "./audit-rows.ts";

/** A call that a platform credential made in a tenant's org. */
export interface ImpersonatedCall {
  caller: Caller;
  environmentId: string;
  operation: string;
  requestId: string;
  outcome: string;
}

export interface PlatformEventPage {
  events: PlatformEvent[];
  /** Of all that match, counted up to `countCap` and among as many. */
  total: number;
  /** There may be more than were counted. */
  isTotalCut: boolean;
  nextCursor: string | undefined;
  /** How many rows were looked at, when that ended the page; else 0. */
  scanned: number;
}

export type PlatformAudit = ReturnType<typeof openPlatformAudit>;

const pageDefault = 100;
const sliceMax = 500;

/** The columns of the caller: only keys and users of the platform have one. */
function platformIdsOf(by: Pick<Caller, "kind" | "id"> | undefined): { keyId: string; userId: string } {
  if (by?.kind !== "platform") return { keyId: "", userId: "" };
  return by.id.startsWith("puser_") ? { keyId: "", userId: by.id } : { keyId: by.id, userId: "" };
}

export function openPlatformAudit(
  deps: Basics<"store" | "clock" | "ids" | "log"> & { onWritten: () => void },
) {
  const { store, clock, ids, log } = deps;
  let waiting: PlatformEvent[] = [];
  let unwritten = 0;

  const event = (
    type: PlatformEventType,
    by: Pick<Caller, "kind" | "id"> | undefined,
    rest: { impersonatedOrgId: string; payload: Record<string, unknown> },
  ): PlatformEvent => ({
    id: ids.next("paud"),
    type,
    ...platformIdsOf(by),
    ...rest,
    createdAt: clock.now(),
  });

  async function writeOnce(): Promise<void> {
    if (waiting.length === 0 && unwritten === 0) return;
    const taken = waiting;
    waiting = [];
    if (unwritten > 0) {
      log.error("platform.audit_unwritten", { calls: unwritten });
      const payload = { unwritten_calls: unwritten };
      taken.push(event("platform.impersonated", undefined, { impersonatedOrgId: "", payload }));
      unwritten = 0;
    }
    while (taken.length > 0) {
      const slice = taken.slice(0, sliceMax);
      try {
        await store.write((session) => rows.insertEvents(session, slice));
      } catch (error) {
        waiting = [...taken, ...waiting];
        throw error;
      }
      taken.splice(0, slice.length);
      deps.onWritten();
    }
  }

  return {
    /** Writes the line in the transaction of the change: both are committed, or neither. */
    record: (
      session: Session,
      {
        type,
        by,
        payload,
      }: {
        type: PlatformEventType;
        by: Pick<Caller, "kind" | "id"> | undefined;
        payload: Record<string, unknown>;
      },
    ) => rows.insertEvents(session, [event(type, by, { impersonatedOrgId: "", payload })]),

    /**
     * Never waits: the loop writes the line within a second. A node that dies loses the lines it had not
     * written. While `platformAuditWaitingMax` lines wait, further ones are dropped, and one more line
     * counts them.
     */
    impersonated({ caller, environmentId, operation, requestId, outcome }: ImpersonatedCall) {
      if (waiting.length >= platformAuditWaitingMax) {
        unwritten++;
        return;
      }
      const payload = { operation, outcome, environment_id: environmentId, request_id: requestId };
      waiting.push(event("platform.impersonated", caller, { impersonatedOrgId: caller.orgId, payload }));
    },

    /** One round of the loop `platform.audit`; at the server's end too. */
    writeOnce,

    /** Forgets lines older than `platformAuditKeptMs`. */
    duty: {
      duty: "retention",
      name: "platform.forget",
      about: "Deletes lines of the platform's audit that are past their retention.",
      everyMs: 10 * 60_000,
      async tick(write: Store["write"]) {
        const before = clock.now() - platformAuditKeptMs;
        while (
          (await write((session) => rows.forgetBefore(session, before, purgeSliceMax))) === purgeSliceMax
        );
      },
    },

    /** Newest first. */
    async list(
      filter: PlatformEventFilter,
      { cursor, limit }: { cursor: string | undefined; limit: number | undefined },
    ): Promise<PlatformEventPage> {
      const most = pageSize(limit, pageDefault);
      const after = cursor === undefined ? undefined : readCursor("cursor", cursor);
      // Lines that this node has not written yet would be missing from the answer.
      await writeOnce().catch((error) => log.warn("platform.audit_late", { error }));
      const [found, { count, isCut }] = await Promise.all([
        rows.eventsOf(store, filter, { after, limit: most + 1 }),
        rows.countEvents(store, filter),
      ]);
      const { items, ...page } = boundedPageOf(found, most, ({ createdAt, id }) =>
        writeCursor({ at: createdAt, id }),
      );
      return { events: items, total: count, isTotalCut: isCut, ...page };
    },
  };
}
