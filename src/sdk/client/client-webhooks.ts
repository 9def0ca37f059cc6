import { withUnits } from "../wire/duration.ts";
import { all, fieldsOf, instant, type Message, present, text } from "../wire/read.ts";
import { once, safe } from "../wire/retry.ts";
import type { Transport } from "../wire/transport.ts";
import type {
  Alert,
  AlertCalls,
  AlertDelivery,
  AlertRule,
  AlertTarget,
  GraceOption,
  WebhookCalls,
  WebhookDeadLetter,
  WebhookDelivery,
  WebhookEndpoint,
  WebhookEndpointCalls,
  WebhookSource,
  WebhookSourceCalls,
  WebhookTrial,
} from "./webhook-types.ts";

const graced = (options: GraceOption): GraceOption =>
  withUnits("rotateSecret", options, { graceSeconds: "grace" });

const readSource = (message: Message): WebhookSource => ({
  id: text(message.id),
  name: text(message.name),
  eventPrefix: text(message.eventPrefix),
  sourceType: text(message.sourceType),
  metadata: (message.metadata ?? {}) as Record<string, unknown>,
  secretSet: message.verifySecretSet === true,
  previousSecretSet: message.verifySecretPrevSet === true,
  ingestTokenPrefix: text(message.ingestTokenPrefix),
  ...present(message, ["ingestToken"]),
  createdAt: text(message.createdAt),
  updatedAt: text(message.updatedAt),
});

const readTrial = (message: Message): WebhookTrial => ({
  verified: message.verified === true,
  signingString: text(message.signingString),
  presentedSignatures: (message.presentedSignatures ?? []) as string[],
  ...present(message, ["computedSignature", "resolvedTimestamp", "resolvedEventName", "resolvedDedupId"]),
  ...present(message, ["error"]),
});

const deliveryFields = fieldsOf<WebhookDelivery>()({
  texts: ["id", "sourceId", "status", "signatureKey", "requestBody", "createdAt"],
  flags: ["duplicate", "requestBodyTruncated"],
  given: ["eventId", "eventName", "externalId", "error", "redeliveredFrom"],
});
const readDelivery = (message: Message): WebhookDelivery => ({
  ...deliveryFields(message),
  requestHeaders: (message.requestHeaders ?? {}) as Record<string, string>,
});

const readEndpoint: (message: Message) => WebhookEndpoint = fieldsOf<WebhookEndpoint>()({
  texts: ["id", "name", "url", "pattern", "filter", "status", "createdAt", "updatedAt"],
  counts: ["position", "behind", "attempts", "deadLetters"],
  given: ["disabledReason", "secret", "failingEventId", "nextAttemptAt", "lastError", "lastDeliveredAt"],
});

const readLetter: (message: Message) => WebhookDeadLetter = fieldsOf<WebhookDeadLetter>()({
  texts: ["endpointId", "eventId", "eventName", "lastError", "deadAt"],
  ...{ counts: ["sequence", "attempts"], flags: ["redelivering"] },
});

export const webhookCalls = (transport: Transport): WebhookCalls => ({
  sources: sourceCalls(transport),
  endpoints: endpointCalls(transport),
});

function sourceCalls(transport: Transport): WebhookSourceCalls {
  const ask = (method: string, message: object, options = safe) =>
    transport.rpc<Message>(`WebhookService/${method}`, message, options);
  return {
    create: async ({ secret, ...source }) =>
      readSource(await ask("CreateWebhookSource", { ...source, verifySecret: secret }, once)),
    get: async (id) => readSource(await ask("GetWebhookSource", { id })),
    list: async (options = {}) => all((await ask("ListWebhookSources", options)).sources, readSource),
    update: async (id, change) => readSource(await ask("UpdateWebhookSource", { id, ...change }, once)),
    test: async ({ secret, ...sample }) =>
      readTrial(await ask("TestWebhookVerifyConfig", { ...sample, verifySecret: secret })),
    rotateSecret: async (id, secret, options = {}) =>
      readSource(await ask("RotateWebhookSecret", { id, verifySecret: secret, ...graced(options) }, once)),
    rotateToken: async (id) => readSource(await ask("RotateWebhookIngestToken", { id }, once)),
    async delete(id) {
      await ask("DeleteWebhookSource", { id }, once);
    },
    deliveries: async (sourceId, options = {}) =>
      all((await ask("ListWebhookDeliveries", { sourceId, ...options })).deliveries, readDelivery),
    delivery: async (id) => readDelivery(await ask("GetWebhookDelivery", { id })),
    redeliver: async (id) => readDelivery(await ask("RedeliverWebhook", { id }, once)),
  };
}

function endpointCalls(transport: Transport): WebhookEndpointCalls {
  const ask = (method: string, message: object, options = safe) =>
    transport.rpc<Message>(`WebhookEndpointService/${method}`, message, options);
  const change = async (method: string, message: object, options = safe) =>
    readEndpoint(await ask(method, message, options));
  return {
    create: (endpoint) => change("CreateWebhookEndpoint", endpoint, once),
    get: (id) => change("GetWebhookEndpoint", { id }),
    list: async (options = {}) => all((await ask("ListWebhookEndpoints", options)).endpoints, readEndpoint),
    update: (id, given) => change("UpdateWebhookEndpoint", { id, ...given }),
    rotateSecret: async (id, options = {}) =>
      change("RotateWebhookEndpointSecret", { id, ...graced(options) }, once),
    pause: (id) => change("PauseWebhookEndpoint", { id }),
    resume: (id, options = {}) => change("ResumeWebhookEndpoint", { id, ...options }, once),
    async delete(id) {
      await ask("DeleteWebhookEndpoint", { id }, once);
    },
    deadLetters: async (endpointId, options = {}) =>
      all((await ask("ListWebhookDeadLetters", { endpointId, ...options })).deadLetters, readLetter),
    redeliver: async (endpointId, eventId) =>
      readLetter(await ask("RedeliverWebhookDeadLetter", { endpointId, eventId })),
    async discard(endpointId, eventId) {
      await ask("DiscardWebhookDeadLetter", { endpointId, eventId }, once);
    },
  };
}

const readTarget = (message: Message) =>
  ({ type: text(message.type), ...present(message, ["url", "secret", "to"]) }) as AlertTarget;

const ruleFields = fieldsOf<AlertRule>()({
  texts: ["name", "condition", "createdAt", "updatedAt"],
  counts: ["repeatAfterMs", "resolveAfterMs"],
  given: ["functionId", "share", "windowMinutes", "minimum", "waitingMs", "silencedUntil"],
});
const readRule = (message: Message): AlertRule => ({
  ...ruleFields(message),
  targets: all(message.targets, readTarget),
});

const readAlertDelivery: (message: Message) => AlertDelivery = fieldsOf<AlertDelivery>()({
  ...{ texts: ["target", "kind", "state"], counts: ["attempts"], given: ["lastError", "sentAt"] },
});

const alertFields = fieldsOf<Alert>()({
  texts: ["id", "rule", "condition", "subject", "detail", "state", "openedAt", "seenAt"],
  ...{ counts: ["count"], given: ["toldAt", "resolvedAt", "resolvedBy"] },
});
const readAlert = (message: Message): Alert => ({
  ...alertFields(message),
  deliveries: all(message.deliveries, readAlertDelivery),
});

type AlertTest = Awaited<ReturnType<AlertCalls["rules"]["test"]>>[number];

export function alertCalls(transport: Transport): AlertCalls {
  const ask = (method: string, message: object, options = safe) =>
    transport.rpc<Message>(`AlertService/${method}`, message, options);
  return {
    async list(options = {}) {
      const answer = await ask("ListAlerts", options);
      return { alerts: all(answer.alerts, readAlert), nextCursor: text(answer.nextCursor) };
    },
    resolve: async (id) => readAlert(await ask("ResolveAlert", { id })),
    rules: {
      put: async (rule) => readRule(await ask("PutAlertRule", rule)),
      get: async (name) => readRule(await ask("GetAlertRule", { name })),
      list: async () => all((await ask("ListAlertRules", {})).rules, readRule),
      async delete(name) {
        await ask("DeleteAlertRule", { name }, once);
      },
      silence: async (name, until) =>
        readRule(await ask("SilenceAlertRule", { name, until: until && instant(until) })),
      test: async (name) =>
        all(
          (await ask("TestAlertRule", { name }, once)).results,
          fieldsOf<AlertTest>()({ texts: ["target", "error"], flags: ["delivered"] }),
        ),
    },
  };
}
