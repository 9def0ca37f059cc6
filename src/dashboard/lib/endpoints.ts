import type { WebhookEndpoint } from "../../gen/svc/v1/webhook_pb.ts";
import { rpc } from "./api.ts";
import { instantOf } from "./format.ts";
import type { InJson, MethodName } from "./messages.ts";
import { offsetPage, type RowsPage } from "./pages.ts";

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

const service = "WebhookEndpointService";

export async function listEndpoints(cursor: string, signal: AbortSignal): Promise<RowsPage<EndpointView>> {
  const asked = { limit: 100, offset: Number(cursor || 0) };
  const { endpoints = [], totalCount = 0 } = await rpc(service, "ListWebhookEndpoints", asked, signal);
  return offsetPage(cursor, endpoints.map(endpointOf), totalCount);
}

export const getEndpoint = async (id: string, signal: AbortSignal): Promise<EndpointView> =>
  endpointOf(await rpc(service, "GetWebhookEndpoint", { id }, signal));

/** Changes an endpoint, or makes one; answers the secret where the server has made one. */
export async function changeEndpoint(
  method: MethodName<typeof service>,
  body: object,
): Promise<{ endpoint: EndpointView; secret: string }> {
  const m = (await rpc(service, method, body)) as InJson<WebhookEndpoint>;
  return { endpoint: endpointOf(m), secret: m.secret ?? "" };
}

export const deleteEndpoint = (id: string): Promise<unknown> => rpc(service, "DeleteWebhookEndpoint", { id });
