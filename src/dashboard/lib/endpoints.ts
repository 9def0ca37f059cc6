import { rpc } from "./api.ts";
import { instantOf } from "./format.ts";
import { offsetPage, type RowsPage } from "./pages.ts";

/** Where events are sent. */
export interface EndpointView {
  id: string;
  name: string;
  url: string;
  pattern: string;
  filter: string;
  status: string;
  disabledReason: string;
  previousUntil: number | undefined;
  position: number;
  behind: number;
  attempts: number;
  failingEventId: string;
  nextAttemptAt: number | undefined;
  failingSince: number | undefined;
  lastError: string;
  lastDeliveredAt: number | undefined;
  deadLetters: number;
  createdAt: number | undefined;
}

interface EndpointAnswer {
  id: string;
  name?: string;
  url?: string;
  pattern?: string;
  filter?: string;
  status?: string;
  disabledReason?: string;
  secret?: string;
  previousSecretExpiresAt?: string;
  position?: string;
  behind?: string;
  attempts?: number;
  failingEventId?: string;
  nextAttemptAt?: string;
  failingSince?: string;
  lastError?: string;
  lastDeliveredAt?: string;
  deadLetters?: number;
  createdAt?: string;
}

const endpointOf = (m: EndpointAnswer): EndpointView => ({
  ...{ id: m.id, name: m.name ?? "", url: m.url ?? "", pattern: m.pattern ?? "", filter: m.filter ?? "" },
  ...{ status: m.status ?? "", disabledReason: m.disabledReason ?? "" },
  previousUntil: instantOf(m.previousSecretExpiresAt),
  ...{ position: Number(m.position ?? 0), behind: Number(m.behind ?? 0), attempts: m.attempts ?? 0 },
  ...{ failingEventId: m.failingEventId ?? "", nextAttemptAt: instantOf(m.nextAttemptAt) },
  ...{ failingSince: instantOf(m.failingSince), lastError: m.lastError ?? "" },
  ...{ lastDeliveredAt: instantOf(m.lastDeliveredAt), deadLetters: m.deadLetters ?? 0 },
  createdAt: instantOf(m.createdAt),
});

const call = <Answer>(method: string, body: object, signal?: AbortSignal): Promise<Answer> =>
  rpc<Answer>("WebhookEndpointService", method, body, signal);

export async function listEndpoints(cursor: string, signal: AbortSignal): Promise<RowsPage<EndpointView>> {
  const { endpoints = [], totalCount = 0 } = await call<{
    endpoints?: EndpointAnswer[];
    totalCount?: number;
  }>("ListWebhookEndpoints", { limit: 100, offset: Number(cursor || 0) }, signal);
  return offsetPage(cursor, endpoints.map(endpointOf), totalCount);
}

export const getEndpoint = async (id: string, signal: AbortSignal): Promise<EndpointView> =>
  endpointOf(await call("GetWebhookEndpoint", { id }, signal));

/** Changes an endpoint, or makes one; answers the secret where the server has made one. */
export async function changeEndpoint(
  method: string,
  body: object,
): Promise<{ endpoint: EndpointView; secret: string }> {
  const m = await call<EndpointAnswer>(method, body);
  return { endpoint: endpointOf(m), secret: m.secret ?? "" };
}

export const deleteEndpoint = (id: string): Promise<unknown> => call("DeleteWebhookEndpoint", { id });
