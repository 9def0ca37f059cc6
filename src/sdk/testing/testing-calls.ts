import { reportedError } from "../wire/errors.ts";
import type { TestPlan, TestResult } from "./test-plan.ts";
import { asJson } from "./testing-json.ts";
import type { TestNames } from "./testing-names.ts";

/** The calls that steps of a test run make to the server. A call with a used key changes nothing. */
export class TestCalls {
  readonly emitted: TestResult["emitted"] = [];
  readonly published: TestResult["published"] = [];
  readonly toolCalls: TestResult["toolCalls"] = [];
  /** What the test would have had to say. */
  lacking: TypeError | undefined;
  readonly #tools: TestPlan["tools"];
  readonly #names: TestNames;

  constructor(tools: TestPlan["tools"], names: TestNames) {
    this.#tools = tools;
    this.#names = names;
  }

  async answer(method: string, message: unknown): Promise<Record<string, unknown>> {
    const sent = message as Record<string, unknown>;
    if (method === "AgentToolsService/InvokeTool") return this.#answerOfTool(sent);
    const idempotencyKey = String(sent.idempotencyKey);
    const data = asJson("data" in sent ? sent.data : sent.dataValue);
    if (method === "PubSubService/Publish") {
      const sequence = placeOf(this.published, { topic: String(sent.topic), data, idempotencyKey });
      return { eventId: `evt_published${sequence}`, sequence };
    }
    const sequence = placeOf(this.emitted, { event: String(sent.event), data, idempotencyKey });
    return { eventId: `evt_emitted${sequence}`, runIds: [], sequence };
  }

  async #answerOfTool(sent: Record<string, unknown>): Promise<Record<string, unknown>> {
    const name = String(sent.toolName);
    const input = asJson("inputValue" in sent ? sent.inputValue : sent.input);
    this.#names.tool(name);
    this.toolCalls.push({ name, input });
    if (!this.#tools.has(name)) {
      this.lacking = new TypeError(`the test has no answer for the tool ${name}: say mockTool("${name}", …)`);
      throw this.lacking;
    }
    const answer = this.#tools.get(name);
    try {
      return { outputValue: asJson(typeof answer === "function" ? await answer(input) : answer) };
    } catch (error) {
      const { message, code = "HANDLER_ERROR" } = reportedError(error);
      return { error: { code, message } };
    }
  }
}

/** The place, from 1, of the call with the same key; a new call is added at the end. */
function placeOf<Call extends { idempotencyKey: string }>(calls: Call[], call: Call): number {
  const at = calls.findIndex((one) => one.idempotencyKey === call.idempotencyKey);
  return at < 0 ? calls.push(call) : at + 1;
}
