import type { Instant } from "../../../kit/clock.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import type { Ids } from "../../../kit/ids.ts";
import { pageOffset, pageSize } from "../../../kit/page.ts";
import type { Basics, Session } from "../../../store/store.ts";
import type { Keyring } from "../../access/keyring/service.ts";
import type { Past } from "../../log/core/feed-reader.ts";
import { parsePattern, readFilter } from "../../realtime/pubsub/rules.ts";
import { insertLetter } from "./letter-rows.ts";
import { endpointSecretBytes, endpointsMax } from "./limits.ts";
import * as rows from "./rows.ts";
import * as rules from "./rules.ts";

export type { ShownRow } from "./rows.ts";

/** An endpoint, with its secret in the answers that make one. */
export interface ShownEndpoint {
  row: rows.ShownRow;
  secret?: string;
}

export interface EndpointInput {
  name?: string | undefined;
  url?: string | undefined;
  pattern?: string | undefined;
  filter?: string | undefined;
}

/** What became of an endpoint; `moved`: it was sent something, or its dead letters are others. */
export interface EndpointChange {
  environmentId: string;
  id: string;
  change: "created" | "updated" | "deleted" | "moved";
}

export interface EndpointsDeps extends Basics<"store" | "clock" | "ids"> {
  keyring: Pick<Keyring, "seal" | "unseal" | "writeSealed">;
  past: Pick<Past, "head" | "at">;
  shareEnvironment: (session: Session, environmentId: string) => Promise<void>;
  graceMsDefault: number;
  /** Called after the commit, for subscribers of frames. */
  announce: (change: EndpointChange) => void;
}

/** What a secret of an endpoint is sealed for: the sealed text opens in no other row. */
export const placeOf = ({ environment_id, id }: rows.EndpointKey): string =>
  `webhook_endpoint/${environment_id}/${id}`;

/** Only what is in the log can be sent from it. */
function requirePattern(text: string): string {
  const { namespace, text: whole } = parsePattern(text);
  if (namespace !== "events" && namespace !== "entity")
    throw invalid("pattern", "must be of events: or entity:, which the event log has");
  return whole;
}

function requireFilter(text: string): string {
  readFilter(text);
  return text;
}

/** The event that fails becomes a dead letter, so that the next one is sent. */
async function skip(
  session: Session,
  { row, eventId, now }: { row: rows.EndpointRow; eventId: string; now: Instant },
): Promise<void> {
  if (row.failing_event_id !== eventId)
    throw new Fault("failed_precondition", "skip_event_id: must be the endpoint's failing_event_id", {
      field: "skip_event_id",
    });
  const event = await session.one<{ position: number; name: string }>(rows.placeOfEvent(row, eventId));
  if (event)
    await insertLetter(session, {
      ...{ environment_id: row.environment_id, endpoint_id: row.id, event_id: eventId },
      ...{ event_name: event.name, position: event.position, attempts: row.attempts },
      ...{ last_error: row.last_error ?? "", dead_at: now, due_at: null },
    });
  await rows.moveEndpoint(session, row, {
    ...row,
    position: event?.position ?? row.position,
    ...{ attempts: 0, failing_event_id: null, tried_since: null, due_at: 0 },
  });
}

/** Where a new endpoint begins: behind a position that is kept, or at the end of the log. */
async function startAfter(
  past: Pick<Past, "head">,
  environmentId: string,
  after: number | undefined,
): Promise<{ position: number; head: number }> {
  const head = await past.head(environmentId);
  if (!head) throw new Fault("not_found", `environment ${environmentId} not found`);
  if (after === undefined) return { position: head.position, head: head.position };
  if (after < 0 || after > head.position) throw invalid("after", `must be from 0 to ${head.position}`);
  if (after < head.retention_floor - 1)
    throw new Fault("failed_precondition", `after: the log begins at ${head.retention_floor}`, {
      field: "after",
    });
  return { position: after, head: head.position };
}

const newSecret = (ids: Pick<Ids, "secret">): string =>
  rules.secretStart + Buffer.from(ids.secret(endpointSecretBytes), "hex").toString("base64");

type FindEndpoint = (environmentId: string, id: string) => Promise<rows.ShownRow>;

/** What callers change of an endpoint. */
function openEndpointChanges(deps: EndpointsDeps, find: FindEndpoint) {
  const { clock, ids, keyring } = deps;

  /** Every change holds the row; a sender at work notices it with its next save. */
  async function change(
    environmentId: string,
    id: string,
    next: (row: rows.EndpointRow, session: Session) => Promise<rows.EndpointRow> | rows.EndpointRow,
  ): Promise<ShownEndpoint> {
    const key = { environment_id: environmentId, id };
    await keyring.writeSealed(async (session) => {
      const before = await rows.holdEndpoint(session, key);
      if (!before) throw rules.missingEndpoint(id);
      const after = await next(before, session);
      await rows.updateEndpoint(session, {
        ...after,
        updated_at: Math.max(clock.now(), before.updated_at + 1),
      });
      return {
        result: undefined,
        sealed: [after.sealed, ...(after.prev_sealed === null ? [] : [after.prev_sealed])],
      };
    });
    deps.announce({ environmentId, id, change: "updated" });
    return { row: await find(environmentId, id) };
  }

  return {
    update: (environmentId: string, id: string, input: EndpointInput) =>
      change(environmentId, id, (row) => ({
        ...row,
        name: input.name === undefined ? row.name : rules.requireName(input.name),
        url: input.url === undefined ? row.url : rules.requireUrl(input.url),
        pattern: input.pattern === undefined ? row.pattern : requirePattern(input.pattern),
        filter: input.filter === undefined ? row.filter : requireFilter(input.filter),
      })),

    async rotateSecret(
      environmentId: string,
      id: string,
      graceSeconds: number | undefined,
    ): Promise<ShownEndpoint> {
      const secret = newSecret(ids);
      const graceMs =
        graceSeconds === undefined ? deps.graceMsDefault : rules.requireGrace(graceSeconds) * 1_000;
      const { row } = await change(environmentId, id, (before) => ({
        ...before,
        sealed: keyring.seal(placeOf(before), secret),
        prev_sealed: graceMs > 0 ? before.sealed : null,
        prev_expires_at: graceMs > 0 ? clock.now() + graceMs : null,
      }));
      return { row, secret };
    },

    pause: (environmentId: string, id: string) =>
      change(environmentId, id, (row) =>
        row.status === "active" ? { ...row, status: "paused", stopped_at: clock.now() } : row,
      ),

    /** Goes on where it stopped, at once. What expired meanwhile is passed over by the sender. */
    resume: (environmentId: string, id: string, skipEventId: string) =>
      change(environmentId, id, async (row, session) => {
        if (skipEventId !== "") await skip(session, { row, eventId: skipEventId, now: clock.now() });
        return {
          ...row,
          ...{ status: "active", disabled_reason: "", stopped_at: null, due_at: 0 },
          // Its time until it is disabled starts again.
          failing_since: null,
        };
      }),
  };
}

/** Endpoints of outbound webhooks as callers make and change them. */
export function openEndpoints(deps: EndpointsDeps) {
  const { store, clock, ids, keyring, past } = deps;
  async function find(environmentId: string, id: string): Promise<rows.ShownRow> {
    const row = await rows.showEndpoint(store, { environment_id: environmentId, id });
    if (!row) throw rules.missingEndpoint(id);
    return row;
  }

  return {
    find,

    async create(
      environmentId: string,
      input: EndpointInput & { url: string; pattern: string; after?: number | undefined },
    ): Promise<ShownEndpoint> {
      const secret = newSecret(ids);
      const key = { environment_id: environmentId, id: ids.next("whe") };
      const now = clock.now();
      const { position, head } = await startAfter(past, environmentId, input.after);
      const facts = {
        ...key,
        name: rules.requireName(input.name ?? ""),
        url: rules.requireUrl(input.url),
        pattern: requirePattern(input.pattern),
        filter: requireFilter(input.filter ?? ""),
        position,
        ...{ status: "active", disabled_reason: "", prev_sealed: null, prev_expires_at: null },
        ...{ holder: null, fence: 0, lease_until: 0, due_at: 0, attempts: 0, failing_event_id: null },
        ...{ tried_since: null, failing_since: null, last_error: null, last_delivered_at: null },
        ...{ stopped_at: null, created_at: now, updated_at: now },
      };
      const row = await keyring.writeSealed(async (session) => {
        await deps.shareEnvironment(session, environmentId);
        if ((await rows.countEndpoints(session, environmentId)) >= endpointsMax)
          throw new Fault(
            "resource_exhausted",
            `an environment holds at most ${endpointsMax} webhook endpoints`,
          );
        const sealed = keyring.seal(placeOf(key), secret);
        await rows.insertEndpoint(session, { ...facts, sealed });
        return { result: { ...facts, sealed }, sealed: [sealed] };
      });
      deps.announce({ environmentId, id: key.id, change: "created" });
      return { row: { ...row, head, letters: 0 }, secret };
    },

    async list(
      environmentId: string,
      input: { status: string; limit: number; offset: number },
    ): Promise<{ endpoints: rows.ShownRow[]; totalCount: number }> {
      const status = rules.requireStatus(input.status);
      const page = { status, limit: pageSize(input.limit), offset: pageOffset(input.offset) };
      const [endpoints, totalCount] = await Promise.all([
        rows.listEndpoints(store, environmentId, page),
        rows.countEndpoints(store, environmentId, status),
      ]);
      return { endpoints, totalCount };
    },

    ...openEndpointChanges(deps, find),

    async delete(environmentId: string, id: string): Promise<void> {
      const key = { environment_id: environmentId, id };
      if ((await store.write((session) => rows.deleteEndpoint(session, key))) === 0)
        throw rules.missingEndpoint(id);
      deps.announce({ environmentId, id, change: "deleted" });
    },

    /** Seals all secrets again, in the transaction that rotates the master key. */
    async reseal(session: Session, again: (place: string, sealed: string) => string): Promise<void> {
      for (const row of await rows.sealedEndpoints(session))
        await rows.resealEndpoint(session, {
          ...row,
          sealed: again(placeOf(row), row.sealed),
          prev_sealed: row.prev_sealed === null ? null : again(placeOf(row), row.prev_sealed),
        });
    },
  };
}
