import type { WebhookDelivery, WebhookEndpoint, WebhookSource } from "../../gen/svc/v1/webhook_pb.ts";
import { rest, rpc } from "./api.ts";
import { instantOf } from "./format.ts";
import type { InJson, MethodAnswer, MethodName } from "./messages.ts";
import { offsetPage, type RowsPage } from "./pages.ts";

/** How a source verifies and names what comes. */
export type ConfigValues = Record<string, string | number | undefined>;

/** A source of inbound webhooks, without its secrets. */
export type SourceView = ReturnType<typeof sourceOf>;

/** The server answers each name in both spellings, and takes one of them. */
const configOf = (config: ConfigValues | undefined): ConfigValues | undefined =>
  config && Object.fromEntries(Object.entries(config).filter(([name]) => !name.includes("_")));

const sourceOf = (m: InJson<WebhookSource>) => ({
  ...{ id: m.id ?? "", name: m.name ?? "" },
  ...{ prefix: m.eventPrefix ?? "", verifies: m.verifySecretSet ?? false },
  ...{ tokenPrefix: m.ingestTokenPrefix ?? "", config: configOf(m.verifyConfig), metadata: m.metadata },
  /** When the previous secret ends; undefined where there is none. */
  previousUntil: instantOf(m.verifySecretPrevExpiresAt),
  /** `updated`: as the server wrote it: what a change expects. */
  ...{ updatedAt: instantOf(m.updatedAt), updated: m.updatedAt ?? "" },
});

const service = "WebhookService";

export async function listSources(cursor: string, signal: AbortSignal): Promise<RowsPage<SourceView>> {
  const asked = { limit: 100, offset: Number(cursor || 0) };
  const { sources = [], totalCount = 0 } = await rpc(service, "ListWebhookSources", asked, signal);
  return offsetPage(cursor, sources.map(sourceOf), totalCount);
}

export const getSource = async (id: string, signal: AbortSignal): Promise<SourceView> =>
  sourceOf(await rpc(service, "GetWebhookSource", { id }, signal));

/** Changes a source, or makes one; answers the ingest token where the server has made one. */
export async function changeSource(
  method: MethodName<typeof service>,
  body: object,
): Promise<{ source: SourceView; token: string }> {
  const m = (await rpc(service, method, body)) as InJson<WebhookSource>;
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
export type DeliveryView = ReturnType<typeof deliveryOf>;

const deliveryOf = (m: InJson<WebhookDelivery>) => ({
  ...{ id: m.id ?? "", sourceId: m.sourceId ?? "", status: m.status ?? "", error: m.error ?? "" },
  ...{ eventId: m.eventId ?? "", eventName: m.eventName ?? "", externalId: m.externalId ?? "" },
  createdAt: instantOf(m.createdAt),
  ...{ body: m.requestBody ?? "", isBodyCut: m.requestBodyTruncated ?? false },
  headers: (m.requestHeaders ?? {}) as Record<string, string>,
  ...{ signatureKey: m.signatureKey ?? "", isRepeat: m.duplicate ?? false },
  redeliveredFrom: m.redeliveredFrom ?? "",
});

export async function listDeliveries(
  filters: { sourceId: string; status: string },
  cursor: string,
  signal: AbortSignal,
): Promise<RowsPage<DeliveryView>> {
  const asked = { ...filters, limit: 50, cursor };
  const { deliveries = [], nextCursor } = await rpc(service, "ListWebhookDeliveries", asked, signal);
  return { rows: deliveries.map(deliveryOf), next: nextCursor || undefined };
}

export const getDelivery = async (id: string, signal: AbortSignal): Promise<DeliveryView> =>
  deliveryOf(await rpc(service, "GetWebhookDelivery", { id }, signal));

export const redeliver = async (id: string): Promise<DeliveryView> =>
  deliveryOf(await rpc(service, "RedeliverWebhook", { id }));

/** What the ingest would make of a sample. */
export type TrialView = MethodAnswer<typeof service, "TestWebhookVerifyConfig">;

export const tryVerify = (sample: {
  sourceId: string;
  body: string;
  headers: Record<string, string>;
  verifySecret?: string;
  verifyConfig?: ConfigValues;
}): Promise<TrialView> => rpc(service, "TestWebhookVerifyConfig", sample);

/** Where events are sent. */
export type EndpointView = ReturnType<typeof endpointOf>;

const endpointOf = (m: InJson<WebhookEndpoint>) => ({
  ...{ id: m.id ?? "", name: m.name ?? "", url: m.url ?? "" },
  ...{ pattern: m.pattern ?? "", filter: m.filter ?? "" },
  ...{ status: m.status ?? "", disabledReason: m.disabledReason ?? "" },
  previousUntil: instantOf(m.previousSecretExpiresAt),
  ...{ position: Number(m.position ?? 0), behind: Number(m.behind ?? 0), attempts: m.attempts ?? 0 },
  ...{ failingEventId: m.failingEventId ?? "", nextAttemptAt: instantOf(m.nextAttemptAt) },
  ...{ failingSince: instantOf(m.failingSince), lastError: m.lastError ?? "" },
  ...{ lastDeliveredAt: instantOf(m.lastDeliveredAt), deadLetters: m.deadLetters ?? 0 },
  createdAt: instantOf(m.createdAt),
});

const endpointService = "WebhookEndpointService";

export async function listEndpoints(cursor: string, signal: AbortSignal): Promise<RowsPage<EndpointView>> {
  const asked = { limit: 100, offset: Number(cursor || 0) };
  const { endpoints = [], totalCount = 0 } = await rpc(
    endpointService,
    "ListWebhookEndpoints",
    asked,
    signal,
  );
  return offsetPage(cursor, endpoints.map(endpointOf), totalCount);
}

export const getEndpoint = async (id: string, signal: AbortSignal): Promise<EndpointView> =>
  endpointOf(await rpc(endpointService, "GetWebhookEndpoint", { id }, signal));

/** Changes an endpoint, or makes one; answers the secret where the server has made one. */
export async function changeEndpoint(
  method: MethodName<typeof endpointService>,
  body: object,
): Promise<{ endpoint: EndpointView; secret: string }> {
  const m = (await rpc(endpointService, method, body)) as InJson<WebhookEndpoint>;
  return { endpoint: endpointOf(m), secret: m.secret ?? "" };
}

export const deleteEndpoint = (id: string): Promise<unknown> =>
  rpc(endpointService, "DeleteWebhookEndpoint", { id });
