import type { TestResult } from "./test-plan.ts";
import { asJson } from "./testing-json.ts";

/** The calls that steps of a test run make to the server. A call with a key that was used before changes nothing. */
export class TestCalls {
  readonly emitted: TestResult["emitted"] = [];
  readonly published: TestResult["published"] = [];

  answer(method: string, message: unknown): Record<string, unknown> {
    const sent = message as Record<string, unknown>;
    const idempotencyKey = String(sent.idempotencyKey);
    const data = asJson("data" in sent ? sent.data : sent.dataValue);
    if (method === "PubSubService/Publish") {
      const sequence = placeOf(this.published, { topic: String(sent.topic), data, idempotencyKey });
      return { eventId: `evt_published${sequence}`, sequence };
    }
    const sequence = placeOf(this.emitted, { event: String(sent.event), data, idempotencyKey });
    return { eventId: `evt_emitted${sequence}`, runIds: [], sequence };
  }
}

/** The place, from 1, of the call with the same key; a new call is added at the end. */
function placeOf<Call extends { idempotencyKey: string }>(calls: Call[], call: Call): number {
  const at = calls.findIndex((one) => one.idempotencyKey === call.idempotencyKey);
  return at < 0 ? calls.push(call) : at + 1;
}
