import { all, fieldsOf, instant, type Message, present, text } from "../wire/read.ts";
import { once, safe } from "../wire/retry.ts";
import type { Transport } from "../wire/transport.ts";
import type { Alert, AlertCalls, AlertDelivery, AlertRule, AlertTarget } from "./alert-types.ts";

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

const readDelivery: (message: Message) => AlertDelivery = fieldsOf<AlertDelivery>()({
  ...{ texts: ["target", "kind", "state"], counts: ["attempts"], given: ["lastError", "sentAt"] },
});

const alertFields = fieldsOf<Alert>()({
  texts: ["id", "rule", "condition", "subject", "detail", "state", "openedAt", "seenAt"],
  ...{ counts: ["count"], given: ["toldAt", "resolvedAt", "resolvedBy"] },
});
const readAlert = (message: Message): Alert => ({
  ...alertFields(message),
  deliveries: all(message.deliveries, readDelivery),
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
