import type { Instant } from "../../../../kit/clock.ts";
import { Fault, missing } from "../../../../kit/fault.ts";
import { storedKey } from "../../../../kit/key-claims.ts";
import type { Counter, Family } from "../../../../kit/metrics.ts";
import { tokenBuckets } from "../../../../kit/token-buckets.ts";
import type { TtlCache } from "../../../../kit/ttl-cache.ts";
import type { Basics, Session, StoreReader } from "../../../../store/store.ts";
import type { Arrival } from "../../../engine/emit/arrival.ts";
import type { Events } from "../../../engine/emit/service.ts";
import { bodyOf, eventDraft, nameIn, textAt, type WebhookContent } from "../content.ts";
import {
  burstSeconds,
  deliveryErrorCharsMax,
  keptBodyBytesMax,
  refusalsBurst,
  refusalsPerSecond,
  refusedBodyBytesMax,
  sourcesCachedMax,
} from "../limits.ts";
import * as rows from "../rows.ts";
import { firstEvent } from "../rows.ts";
import * as rules from "../rules.ts";
import { emptyConfig } from "../rules.ts";
import type { HeldSource, SourceChange } from "../source-changes.ts";
import { dedupIdOf, type SignatureKey, uncovered, verify } from "../verify.ts";

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
interface Ingested {
  source: HeldSource;
  content: WebhookContent;
  deliveryId: string;
  externalId: string;
  signatureKey: SignatureKey;
  /** As repeats are known where the signature leaves the id or the name open; null where it covers both. */
  proofKey: string | null;
  traceparent?: string | undefined;
}

interface RecordDeps extends Basics<"store" | "clock" | "log"> {
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
function arrivalOf(request: Ingested, at: Instant): Arrival {
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
function openRecord(deps: RecordDeps, received: Family<readonly ["outcome"], Counter>) {
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

export interface IngestDeps extends Basics<"ids" | "metrics">, RecordDeps {
  held: Pick<TtlCache<HeldSource>, "get" | "forget">;
  events: Pick<Events, "emit">;
  /** Requests a second that one source takes at this node; 0 for any number. */
  perSecond: number;
}

const noContent: WebhookContent = { bytes: new Uint8Array(), headers: {}, query: "" };

const unauthenticated = (why: string) => new Fault("unauthenticated", why);

/** The event of a signature that came before, under any id and name. */
const proven = async (store: StoreReader, { source: { row }, proofKey }: Ingested) =>
  proofKey === null ? undefined : firstEvent(store, row.environment_id, proofKey);

/** A repeat of what was accepted is one, whatever would be said of it now. */
async function firstOf(store: StoreReader, { source: { row }, externalId }: Ingested) {
  if (externalId === "") return undefined;
  const idempotencyKey = rules.dedupKey(row.id, externalId);
  return firstEvent(store, row.environment_id, storedKey({ idempotencyKey, ownKey: true })!);
}

/** The ingest of inbound webhooks: from a provider's request to an event in the log. */
export function openIngest(deps: IngestDeps) {
  const { store, clock, ids, held, events, perSecond } = deps;
  const received = deps.metrics.counter({
    name: "svc_webhooks_received_total",
    help: "Requests to sources of inbound webhooks, by what became of them.",
    labels: ["outcome"],
  });
  const limited = { clock, holdersMax: sourcesCachedMax };
  const take =
    perSecond > 0 && tokenBuckets({ ...limited, perSecond, burst: Math.ceil(perSecond * burstSeconds) });

  const { refuse, repeat, accepted } = openRecord(deps, received);
  const mayRenew = tokenBuckets({ ...limited, perSecond: refusalsPerSecond, burst: refusalsBurst });

  const requestOf = (source: HeldSource, content: WebhookContent): Ingested => ({
    ...{ source, content, deliveryId: ids.next("whd"), externalId: "", signatureKey: "none" },
    proofKey: null,
  });

  /**
   * The source as the store has it, if it was changed since it was cached: another node may have rotated what
   * a request is about to be refused by. Those who send nothing but wrong ones do not read all the time.
   */
  async function renewed({ row }: HeldSource): Promise<HeldSource | undefined> {
    if (mayRenew(row.id) > 0) return undefined;
    held.forget(row.id);
    const now = await held.get(row.id);
    return now?.row.updated_at === row.updated_at ? undefined : now;
  }

  /** Whether the source's secrets admit the request; `error` says why not. */
  function judged(source: HeldSource, content: WebhookContent, readable: unknown) {
    const now = clock.now();
    const request = requestOf(source, content);
    const { config = emptyConfig } = source;
    const dedupId = dedupIdOf(config, content, readable);
    if (dedupId !== undefined) request.externalId = rules.storedDedupId(dedupId);
    const secrets = source.secrets.filter(({ until }) => until > now);
    if (secrets.length === 0) return { request, error: undefined };
    const isVerifying = source.row.sealed !== null;
    const verdict = verify(config, secrets, content, now);
    request.signatureKey = verdict.verified || isVerifying ? verdict.signatureKey : "none";
    const { id, name } = uncovered(config);
    if (verdict.verified && (id || name))
      request.proofKey = rules.signatureKeyOf(source.row.id, verdict.computedSignature);
    return { request, error: isVerifying && !verdict.verified ? verdict.error : undefined };
  }

  async function emit(request: Ingested, data: unknown, typeData: unknown): Promise<Received> {
    const { source, content, deliveryId, externalId, traceparent } = request;
    const { row } = source;
    const name = nameIn({ event_prefix: row.event_prefix, config: source.config }, content, typeData);
    const draft = eventDraft(row.id, { deliveryId, externalId }, name, data);
    const [emitted] = await events.emit([{ ...draft, arrival: arrivalOf(request, clock.now()) }], {
      ...{ environmentId: row.environment_id, source: "webhook", runId: undefined, traceparent },
    });
    const { eventId, position, repeated } = emitted!;
    if (repeated) return repeat(request, { event_id: eventId, event_name: draft.name, position });
    accepted(row);
    return { eventId, deliveryId, isRepeat: false, environmentId: row.environment_id, position };
  }

  const unknownTo = (id: string): Fault =>
    new Fault("not_found", `webhook source ${id.slice(0, 200)} not found, or the token is not its`);

  return {
    /**
     * Lets a request in by its token, before its body is read; answers whose memory the body takes. A wrong
     * token leaves a row, does not use up the rate of those who have it, and is answered as an unknown id is:
     * who has none must not learn which sources there are.
     */
    async admit(id: string, token: string): Promise<string> {
      const source = await held.get(id);
      if (!source) throw unknownTo(id);
      if (!rules.isToken(token, source.row.token_hash)) {
        const now = await renewed(source);
        if (!now || !rules.isToken(token, now.row.token_hash))
          return refuse(requestOf(now ?? source, noContent), "rejected", unknownTo(id));
      }
      const seconds = take ? take(id) : 0;
      if (seconds === 0) return `webhook:${id}`;
      received("limited").add();
      throw new Fault("resource_exhausted", "too many requests to this webhook source, try again later", {
        headers: { "Retry-After": String(seconds) },
      });
    },

    /** The body of an admitted request was larger than bodies may be. */
    async tooLarge(id: string, fault: Fault): Promise<void> {
      const source = await held.get(id);
      if (source) await refuse(requestOf(source, noContent), "rejected", fault);
    },

    /** Verifies an admitted request, and commits its event, its runs and its delivery together. */
    async receive(id: string, content: WebhookContent, traceparent: string | undefined): Promise<Received> {
      const source = await held.get(id);
      if (!source) throw missing("webhook source", id);
      const { data, readable, fault } = bodyOf(content);
      let verdict = judged(source, content, readable);
      const now = verdict.error === undefined ? undefined : await renewed(source);
      if (now) verdict = judged(now, content, readable);
      const { request, error: mistake } = verdict;
      if (mistake !== undefined) return refuse(request, "rejected", unauthenticated(`signature: ${mistake}`));
      const { row } = request.source;
      try {
        const first = await proven(store, request);
        if (first) return repeat(request, first);
        if (fault) throw fault;
        const answer = await emit({ ...request, traceparent }, data, readable);
        return row.source_type === "slack" ? { ...answer, challenge: challengeIn(readable) } : answer;
      } catch (error) {
        if (!(error instanceof Fault)) throw error;
        // Where that cannot be read either, the first failure is what the provider is told.
        const first = await firstOf(store, request).catch(() => undefined);
        return first ? repeat(request, first) : refuse(request, "failed", error);
      }
    },
  };
}

const challengeIn = (data: unknown): string | undefined =>
  textAt("body:type", { headers: {}, data }) === "url_verification"
    ? textAt("body:challenge", { headers: {}, data })
    : undefined;
