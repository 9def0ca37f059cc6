import { boundedPageOf } from "../../../kit/bounded-look.ts";
import type { Instant } from "../../../kit/clock.ts";
import { Fault, invalid, missing } from "../../../kit/fault.ts";
import { purgeSliceMax } from "../../../kit/limits.ts";
import { pageOffset, pageSize, readNameCursor, writeNameCursor } from "../../../kit/page.ts";
import type { Basics, Store } from "../../../store/store.ts";
import type { Keyring } from "../../access/keyring/service.ts";
import type { Events } from "../../engine/emit/service.ts";
import { bodyOf, eventDraft, nameIn, storedDataOf } from "./content.ts";
import { listedBodyCharsMax } from "./limits.ts";
import * as rows from "./rows.ts";
import { deliveryStatuses } from "./rules.ts";
import { configIn, type HeldSource, type SourceChange, secretsOf } from "./source-changes.ts";
import { verify } from "./verify.ts";

export type { DeliveryRow } from "./rows.ts";

export interface KeptDeliveriesDeps extends Basics<"store" | "clock" | "ids"> {
  keyring: Pick<Keyring, "unseal">;
  events: Pick<Events, "emit">;
  keptMs: number;
  /** Called after the commit, for subscribers of frames. */
  announce: (change: SourceChange) => void;
}

export interface DeliveryList {
  deliveries: rows.DeliveryRow[];
  nextCursor: string | undefined;
  /** Counted up to `countCap`, and among as many deliveries. */
  totalCount: number;
  /** There may be more than were counted. */
  isTotalCut: boolean;
  /** How many deliveries were looked at, when that ended the page; else 0. */
  scanned: number;
}

interface PageInput {
  limit?: number | undefined;
  offset?: number | undefined;
  cursor?: string | undefined;
}

function pageIn({ limit, offset, cursor }: PageInput) {
  if (cursor && offset) throw invalid("cursor", "cannot be combined with offset");
  const before = cursor ? readNameCursor("cursor", cursor) : undefined;
  return { size: pageSize(limit), offset: pageOffset(offset), before };
}

/** What sources see of the newest deliveries of an environment. */
export interface WebhookFlow {
  sources: {
    row: rows.SourceRow;
    counts: Record<string, number>;
    latest: { at: Instant; status: string } | undefined;
  }[];
  edges: { event: string; source_id: string }[];
}

const refused = (why: string) => new Fault("failed_precondition", why);

/** The deliveries of inbound webhooks, which are listed, sent again and forgotten. */
export function openKeptDeliveries(deps: KeptDeliveriesDeps) {
  const { store, clock, ids, keyring, events } = deps;

  async function find(environmentId: string, id: string): Promise<rows.DeliveryRow> {
    const row = await rows.getDelivery(store, environmentId, id);
    if (!row) throw missing("webhook delivery", id);
    return row;
  }

  /** A refused request is let in only when the source's present secret fits; its time may have passed. */
  async function requireVerified(
    row: rows.DeliveryRow,
    source: HeldSource,
    bytes: Uint8Array,
  ): Promise<void> {
    if (row.status !== "rejected") return;
    if (row.body_whole === 0 || row.request_body === "")
      throw refused("the rejected request was not kept as it came, so its signature cannot be verified");
    const headers = JSON.parse(row.request_headers) as Record<string, string>;
    if (!source.config || source.secrets.length === 0)
      throw refused("the source has no secret to verify the rejected request with");
    const verdict = verify(source.config, source.secrets, { bytes, headers, query: "" }, undefined);
    if (!verdict.verified) throw refused(`the rejected request does not verify: ${verdict.error}`);
  }

  return {
    find,

    async list(
      environmentId: string,
      input: PageInput & { sourceId?: string | undefined; status?: string | undefined },
    ): Promise<DeliveryList> {
      const { sourceId, status } = input;
      if (status && !(deliveryStatuses as readonly string[]).includes(status))
        throw invalid("status", `must be one of ${deliveryStatuses.join(", ")}`);
      const filter = { environmentId, sourceId: sourceId || undefined, status: status || undefined };
      const { size, offset, before } = pageIn(input);
      const [found, { count, isCut }] = await Promise.all([
        rows.listDeliveries(store, filter, {
          ...{ before, limit: size + 1, offset, bodyCharsMax: listedBodyCharsMax },
        }),
        rows.countDeliveries(store, filter),
      ]);
      const { items, ...page } = boundedPageOf(found, size, ({ id }) => writeNameCursor(id));
      return { deliveries: items, ...page, totalCount: count, isTotalCut: isCut };
    },

    /** Emits the event of a kept body again, under no key, as a delivery that names the first. */
    async redeliver(environmentId: string, id: string): Promise<rows.DeliveryRow> {
      const row = await find(environmentId, id);
      const sourceRow = await rows.getSource(store, environmentId, row.source_id);
      if (!sourceRow) throw missing("webhook source", row.source_id);
      if (row.body_whole === 0) throw refused("the body of this delivery was not kept as it came");
      const secrets = await secretsOf(sourceRow, keyring);
      const source: HeldSource = { row: sourceRow, config: configIn(sourceRow), secrets };
      const bytes = new TextEncoder().encode(row.request_body);
      await requireVerified(row, source, bytes);
      const headers = JSON.parse(row.request_headers) as Record<string, string>;
      const data = storedDataOf(row.request_body, headers);
      const naming = { event_prefix: sourceRow.event_prefix, config: source.config };
      const name = nameIn(naming, { headers }, bodyOf({ bytes, headers, query: "" }).readable);
      const deliveryId = ids.next("whd");
      const at = clock.now();
      const draft = eventDraft(
        sourceRow.id,
        { deliveryId, externalId: row.external_id, redeliveredFrom: row.id },
        name,
        data,
      );
      const arrival = {
        ...{ id: deliveryId, sourceId: row.source_id, externalId: row.external_id, redeliveredFrom: row.id },
        ...{ signatureKey: row.signature_key, bodyWhole: 1, at },
        ...{ headers: row.request_headers, body: row.request_body },
      };
      await events.emit([{ ...draft, arrival }], { environmentId, source: "webhook", runId: undefined });
      deps.announce({ environmentId, id: row.source_id, change: "received" });
      return find(environmentId, deliveryId);
    },

    async flow(environmentId: string): Promise<WebhookFlow> {
      const [sources, counted] = await Promise.all([
        rows.allSources(store, environmentId),
        rows.flowOf(store, environmentId),
      ]);
      const bySource = Map.groupBy(counted, ({ source_id }) => source_id);
      const edges = new Map<string, WebhookFlow["edges"][number]>();
      for (const { source_id, status, event_name } of counted)
        if (status === "accepted" && event_name !== null)
          edges.set(`${source_id} ${event_name}`, { event: event_name, source_id });
      return {
        sources: sources.map((row) => {
          const own = bySource.get(row.id) ?? [];
          const counts = Object.fromEntries(deliveryStatuses.map((status) => [status, 0]));
          for (const { status, count } of own) counts[status] = (counts[status] ?? 0) + Number(count);
          const latest = own.toSorted((one, other) => Number(other.latest) - Number(one.latest))[0];
          return { row, counts, latest: latest && { at: Number(latest.latest), status: latest.status } };
        }),
        edges: [...edges.values()],
      };
    },

    /** Part of the duty `retention`. */
    async forgetOnce(write: Store["write"]): Promise<void> {
      const before = clock.now() - deps.keptMs;
      while (
        (await write((session) => rows.forgetDeliveries(session, before, purgeSliceMax))) === purgeSliceMax
      );
      const now = clock.now();
      while (
        (await write((session) => rows.dropExpiredSecrets(session, now, purgeSliceMax))) === purgeSliceMax
      );
    },
  };
}
