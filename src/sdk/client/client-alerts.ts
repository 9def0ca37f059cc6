import { instant, type Message, present } from "../wire/read.ts";
import { once, safe } from "../wire/retry.ts";
import type { Transport } from "../wire/transport.ts";
import type { Alert, AlertCalls, AlertDelivery, AlertRule, AlertTarget } from "./alert-types.ts";
import { count, text } from "./entity-messages.ts";

const all = <Row>(list: unknown, read: (message: Message) => Row): Row[] =>
  ((list ?? []) as Message[]).map(read);

const readTarget = (message: Message) =>
  ({ type: text(message.type), ...present(message, ["url", "secret", "to"]) }) as AlertTarget;

const readRule = (message: Message): AlertRule => ({
  name: text(message.name),
  condition: text(message.condition) as AlertRule["condition"],
  ...present(message, ["functionId", "share", "windowMinutes", "minimum", "waitingMs", "silencedUntil"]),
  targets: all(message.targets, readTarget),
  repeatAfterMs: count(message.repeatAfterMs),
  resolveAfterMs: count(message.resolveAfterMs),
  createdAt: text(message.createdAt),
  updatedAt: text(message.updatedAt),
});

const readDelivery = (message: Message): AlertDelivery => ({
  target: text(message.target),
  kind: text(message.kind) as AlertDelivery["kind"],
  state: text(message.state) as AlertDelivery["state"],
  attempts: count(message.attempts),
  ...present(message, ["lastError", "sentAt"]),
});

const readAlert = (message: Message): Alert => ({
  id: text(message.id),
  rule: text(message.rule),
  condition: text(message.condition) as Alert["condition"],
  subject: text(message.subject),
  detail: text(message.detail),
  count: count(message.count),
  state: text(message.state) as Alert["state"],
  openedAt: text(message.openedAt),
  seenAt: text(message.seenAt),
  ...present(message, ["toldAt", "resolvedAt", "resolvedBy"]),
  deliveries: all(message.deliveries, readDelivery),
});

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
        readRule(
          await ask("SilenceAlertRule", { name, ...(until !== undefined && { until: instant(until) }) }),
        ),
      test: async (name) =>
        all((await ask("TestAlertRule", { name }, once)).results, (message) => ({
          target: text(message.target),
          delivered: message.delivered === true,
          error: text(message.error),
        })),
    },
  };
}
