import { rest, rpc } from "./api.ts";
import { instantOf } from "./format.ts";
import { offsetPage, type RowsPage } from "./pages.ts";

/** How a source verifies and names what comes. */
export type ConfigValues = Record<string, string | number | undefined>;

/** A source of inbound webhooks, without its secrets. */
export interface SourceView {
  id: string;
  name: string;
  prefix: string;
  verifies: boolean;
  /** When the previous secret ends; undefined where there is none. */
  previousUntil: number | undefined;
  tokenPrefix: string;
  config: ConfigValues | undefined;
  metadata: unknown;
  updatedAt: number | undefined;
  /** As the server wrote it: what a change expects. */
  updated: string;
}

interface SourceAnswer {
  id: string;
  name?: string;
  eventPrefix?: string;
  verifySecretSet?: boolean;
  verifySecretPrevExpiresAt?: string;
  ingestTokenPrefix?: string;
  ingestToken?: string;
  verifyConfig?: ConfigValues;
  metadata?: unknown;
  updatedAt?: string;
}

/** The server answers each name in both spellings, and takes one of them. */
const configOf = (config: ConfigValues | undefined): ConfigValues | undefined =>
  config && Object.fromEntries(Object.entries(config).filter(([name]) => !name.includes("_")));

const sourceOf = (m: SourceAnswer): SourceView => ({
  ...{ id: m.id, name: m.name ?? "", prefix: m.eventPrefix ?? "", verifies: m.verifySecretSet ?? false },
  ...{ tokenPrefix: m.ingestTokenPrefix ?? "", config: configOf(m.verifyConfig), metadata: m.metadata },
  previousUntil: instantOf(m.verifySecretPrevExpiresAt),
  ...{ updatedAt: instantOf(m.updatedAt), updated: m.updatedAt ?? "" },
});

const call = <Answer>(method: string, body: object, signal?: AbortSignal): Promise<Answer> =>
  rpc<Answer>("WebhookService", method, body, signal);

export async function listSources(cursor: string, signal: AbortSignal): Promise<RowsPage<SourceView>> {
  const { sources = [], totalCount = 0 } = await call<{ sources?: SourceAnswer[]; totalCount?: number }>(
    "ListWebhookSources",
    { limit: 100, offset: Number(cursor || 0) },
    signal,
  );
  return offsetPage(cursor, sources.map(sourceOf), totalCount);
}

export const getSource = async (id: string, signal: AbortSignal): Promise<SourceView> =>
  sourceOf(await call("GetWebhookSource", { id }, signal));

/** Changes a source, or makes one; answers the ingest token where the server has made one. */
export async function changeSource(
  method: string,
  body: object,
): Promise<{ source: SourceView; token: string }> {
  const m = await call<SourceAnswer>(method, body);
  return { source: sourceOf(m), token: m.ingestToken ?? "" };
}

/** What came from each source lately. */
export interface SourceFlow {
  counts: Record<string, number>;
  latestAt: number | undefined;
}

export async function readFlow(signal: AbortSignal): Promise<Map<string, SourceFlow>> {
  const { sources } = await rest<{
    sources: { id: string; delivery_counts: Record<string, number>; latest_delivery_at?: string }[];
  }>("/api/v1/flow/webhooks", { signal });
  return new Map(
    sources.map(({ id, delivery_counts: counts, latest_delivery_at }) => [
      id,
      { counts, latestAt: instantOf(latest_delivery_at) },
    ]),
  );
}

/** What a provider sent. */
export interface DeliveryView {
  id: string;
  status: string;
  error: string;
  eventId: string;
  eventName: string;
  externalId: string;
  createdAt: number | undefined;
  body: string;
  isBodyCut: boolean;
  headers: Record<string, string>;
  signatureKey: string;
  isRepeat: boolean;
  redeliveredFrom: string;
}

interface DeliveryAnswer {
  id: string;
  status?: string;
  error?: string;
  eventId?: string;
  eventName?: string;
  externalId?: string;
  createdAt?: string;
  requestBody?: string;
  requestBodyTruncated?: boolean;
  requestHeaders?: Record<string, string>;
  signatureKey?: string;
  duplicate?: boolean;
  redeliveredFrom?: string;
}

const deliveryOf = (m: DeliveryAnswer): DeliveryView => ({
  ...{ id: m.id, status: m.status ?? "", error: m.error ?? "", eventId: m.eventId ?? "" },
  ...{ eventName: m.eventName ?? "", externalId: m.externalId ?? "", createdAt: instantOf(m.createdAt) },
  ...{ body: m.requestBody ?? "", isBodyCut: m.requestBodyTruncated ?? false },
  ...{ headers: m.requestHeaders ?? {}, signatureKey: m.signatureKey ?? "", isRepeat: m.duplicate ?? false },
  redeliveredFrom: m.redeliveredFrom ?? "",
});

export async function listDeliveries(
  asked: { sourceId: string; status: string },
  cursor: string,
  signal: AbortSignal,
): Promise<RowsPage<DeliveryView>> {
  const { deliveries = [], nextCursor } = await call<{ deliveries?: DeliveryAnswer[]; nextCursor?: string }>(
    "ListWebhookDeliveries",
    { ...asked, limit: 50, cursor },
    signal,
  );
  return { rows: deliveries.map(deliveryOf), next: nextCursor || undefined };
}

export const getDelivery = async (id: string, signal: AbortSignal): Promise<DeliveryView> =>
  deliveryOf(await call("GetWebhookDelivery", { id }, signal));

export const redeliver = async (id: string): Promise<DeliveryView> =>
  deliveryOf(await call("RedeliverWebhook", { id }));

/** What the ingest would make of a sample. */
export interface TrialView {
  verified?: boolean;
  signingString?: string;
  computedSignature?: string;
  presentedSignatures?: string[];
  resolvedTimestamp?: string;
  resolvedEventName?: string;
  resolvedDedupId?: string;
  error?: string;
}

export const tryVerify = (sample: {
  sourceId: string;
  body: string;
  headers: Record<string, string>;
  verifySecret?: string;
  verifyConfig?: ConfigValues;
}): Promise<TrialView> => call("TestWebhookVerifyConfig", sample);
