import type { Instant } from "../../../../kit/clock.ts";
import type { Fault } from "../../../../kit/fault.ts";
import type { Counter, Family } from "../../../../kit/metrics.ts";
import { tokenBuckets } from "../../../../kit/token-buckets.ts";
import type { Basics, Session } from "../../../../store/store.ts";
import type { Arrival } from "../../../engine/emit/arrival.ts";
import type { WebhookContent } from "../content.ts";
import type { HeldSource } from "../held-sources.ts";
import {
  deliveryErrorCharsMax,
  keptBodyBytesMax,
  refusalsBurst,
  refusalsPerSecond,
  refusedBodyBytesMax,
  sourcesCachedMax,
} from "../limits.ts";
import * as rows from "../rows.ts";
import * as rules from "../rules.ts";
import type { SourceChange } from "../source-changes.ts";
import type { SignatureKey } from "../verify.ts";

/** What the provider is answered. */
export interface Received {
  eventId: string;
  deliveryId: string;
  isRepeat: boolean;
  environmentId: string;
  /** Of the event; undefined where the first of a repeat has expired. */
  position: number | undefined;
  /** Slack asks for it before it sends anything. */
  challenge?: string | undefined;
}

/** A request on its way to its event, with all that its delivery keeps. */
export interface Ingested {
  source: HeldSource;
  content: WebhookContent;
  deliveryId: string;
  externalId: string;
  signatureKey: SignatureKey;
  /** As repeats are known where the signature leaves the id or the name open; null where it covers both. */
  proofKey: string | null;
  traceparent?: string | undefined;
}

export interface RecordDeps extends Basics<"store" | "clock" | "log"> {
  shareEnvironment: (session: Session, environmentId: string) => Promise<void>;
  /** Called after the commit, for subscribers of frames. */
  announce: (change: SourceChange) => void;
}

function rowOf(request: Ingested, at: Instant, bytesMax: number) {
  const { source, content, deliveryId, externalId, signatureKey } = request;
  const { text, isWhole } = rules.keptBody(content.bytes, bytesMax);
  return {
    id: deliveryId,
    environment_id: source.row.environment_id,
    source_id: source.row.id,
    external_id: externalId,
    signature_key: signatureKey,
    redelivered_from: null,
    body_whole: isWhole ? 1 : 0,
    created_at: at,
    request_headers: JSON.stringify(rules.keptHeaders(content.headers)),
    request_body: text,
  };
}

/** The delivery of a request as it is written with its event. */
export function arrivalOf(request: Ingested, at: Instant): Arrival {
  const row = rowOf(request, at, keptBodyBytesMax);
  return {
    id: row.id,
    sourceId: row.source_id,
    externalId: row.external_id,
    signatureKey: row.signature_key,
    redeliveredFrom: null,
    bodyWhole: row.body_whole,
    at: row.created_at,
    headers: row.request_headers,
    body: row.request_body,
    proofKey: request.proofKey,
  };
}

/** The deliveries of requests that brought no event of their own. */
export function openRecord(deps: RecordDeps, received: Family<readonly ["outcome"], Counter>) {
  const { store, clock, log, announce } = deps;
  const limited = { clock, holdersMax: sourcesCachedMax };
  const noteRefusal = tokenBuckets({ ...limited, perSecond: refusalsPerSecond, burst: refusalsBurst });

  async function insert(row: rows.DeliveryRow, proofKey: string | null = null): Promise<void> {
    await store.write(async (session) => {
      await deps.shareEnvironment(session, row.environment_id);
      await rows.insertDelivery(session, row);
      if (proofKey !== null) await rows.keepProof(session, row, proofKey);
    });
    announce({ environmentId: row.environment_id, id: row.source_id, change: "received" });
  }

  /** Leaves a row for a request that brought no event. A flood of such requests does not fill the table. */
  async function refuse(request: Ingested, status: "rejected" | "failed", fault: Fault): Promise<never> {
    received(status).add();
    if (noteRefusal(request.source.row.id) === 0) {
      const error = rules.errorOf(fault, deliveryErrorCharsMax);
      const more = { status, error, event_id: null, event_name: null, is_repeat: 0 };
      await insert({ ...rowOf(request, clock.now(), refusedBodyBytesMax), ...more }).catch((reason) =>
        log.warn("webhooks.unrecorded", { sourceId: request.source.row.id, reason }),
      );
    }
    throw fault;
  }

  /** The request is a repeat of an event that stands already. */
  async function repeat(request: Ingested, { position, ...first }: rows.FirstEvent): Promise<Received> {
    received("repeated").add();
    const row = { ...rowOf(request, clock.now(), refusedBodyBytesMax), ...first };
    await insert({ ...row, status: "accepted", error: null, is_repeat: 1 }, request.proofKey);
    const { id: deliveryId, environment_id: environmentId, event_id: eventId } = row;
    return { eventId, deliveryId, isRepeat: true, environmentId, position };
  }

  /** The request brought an event, which has committed its delivery. */
  function accepted({ environment_id: environmentId, id }: rows.SourceRow): void {
    received("accepted").add();
    announce({ environmentId, id, change: "received" });
  }

  return { refuse, repeat, accepted };
}
