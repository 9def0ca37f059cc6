import { expect, test } from "bun:test";
import { create } from "@bufbuild/protobuf";
import { Type } from "@sinclair/typebox";
import { withWords } from "../../src/edge/field-words.ts";
import { RepairItemSchema } from "../../src/gen/svc/v1/repair_pb.ts";
import {
  ListRunSignalsRequestSchema,
  ListRunsRequestSchema,
  RegisterFunctionRequestSchema,
  RunSignalSchema,
  SvcService,
} from "../../src/gen/svc/v1/svc_pb.ts";
import {
  CreateWebhookEndpointRequestSchema,
  WebhookEndpointService,
} from "../../src/gen/svc/v1/webhook_pb.ts";
import { compiled } from "../../src/kit/explain.ts";
import { shapeOf } from "../../src/kit/message-shape.ts";
import { asGiven, asSent, requestOf } from "../../src/kit/request.ts";

const json = (schema: unknown) => JSON.parse(JSON.stringify(schema));

test("REST's schema of a message has its fields, as REST writes them", () => {
  const shape = json(shapeOf(RunSignalSchema, { absent: "data taken_at", omit: "step_id" }));
  expect(shape.properties).toEqual({
    ...{ number: { type: "integer" }, name: { type: "string" }, state: { type: "string" }, data: {} },
    ...{ sent_by: { type: "string" }, sent_at: { type: "string", format: "date-time" } },
    taken_at: { type: "string", format: "date-time" },
  });
  expect(shape.required).toEqual(["number", "name", "state", "sent_by", "sent_at"]);
});

test("fields of REST's own stand in place of the message's, or beside them", () => {
  const own = { outcome: Type.Literal("done"), more: Type.Boolean() };
  const { properties, required } = json(shapeOf(RepairItemSchema, { absent: "error event_id", own }));
  expect(properties.outcome).toEqual({ const: "done", type: "string" });
  expect(Object.keys(properties)).toEqual([
    "run_id",
    "function_id",
    "outcome",
    "error",
    "at",
    "event_id",
    "more",
  ]);
  expect(required).toEqual(["run_id", "function_id", "outcome", "at", "more"]);
});

test("the document has the words of the message, and no name of it", () => {
  const shown = withWords(json(shapeOf(RepairItemSchema))) as { properties: Record<string, object> };
  expect(shown.properties.error).toEqual({ type: "string", description: "Why it is not done." });
  expect(shown.properties.run_id).toMatchObject({ description: "Id of the run (`run_…`)." });
  expect(JSON.stringify(shown)).not.toContain("svc.v1.");
});

test("a request is its fields: what was not sent is left out, and wide numbers are numbers", () => {
  const sent = create(ListRunSignalsRequestSchema, { runId: "run_1", before: 7n });
  expect(asSent(sent)).toEqual({ runId: "run_1", limit: 0, before: 7 });
  expect(asSent(create(CreateWebhookEndpointRequestSchema, { url: "https://a.example" }))).toEqual({
    ...{ name: "", url: "https://a.example", pattern: "", filter: "" },
  });
  const far = create(ListRunSignalsRequestSchema, { before: 2n ** 62n });
  expect(asSent(far).before).toBe(Number.MAX_SAFE_INTEGER);
  const within = create(RegisterFunctionRequestSchema, {
    triggers: [{ event: "order.placed" }],
    debounce: { periodMs: 1_000, maxWaitMs: 9n },
    priority: { kind: { case: "numberValue", value: 7 } },
  });
  const { triggers, debounce, priority } = asSent(within);
  expect({ triggers, debounce }).toEqual({
    triggers: [{ event: "order.placed", expression: "", cron: "" }],
    debounce: { periodMs: 1_000, key: "", maxWaitMs: 9 },
  });
  expect(priority).toMatchObject({ $typeName: "google.protobuf.Value" });
});

test("a request as JSON has it leaves out what is empty, and writes times", () => {
  const since = { seconds: 1_700_000_000n };
  expect(asGiven(create(ListRunsRequestSchema, { functionId: "charge", since, statuses: [5] }))).toEqual({
    ...{ functionId: "charge", since: "2023-11-14T22:13:20.000Z", statuses: [5] },
  });
  expect(asGiven(create(ListRunsRequestSchema))).toEqual({});
});

test("the input of such an operation takes what comes, and refuses what is out of its own bounds", () => {
  const { input } = requestOf(WebhookEndpointService.method.createWebhookEndpoint, () => ({}));
  const takes = compiled(() => input)();
  expect(takes.Check(asSent(create(CreateWebhookEndpointRequestSchema)))).toBe(true);
  expect(takes.Check({ name: "", url: "", pattern: "", filter: "", after: "1" })).toBe(false);
  const bounded = requestOf(SvcService.method.listRunSignals, () => ({}), {
    runId: Type.String({ minLength: 1 }),
  });
  expect(compiled(() => bounded.input)().Check(asSent(create(ListRunSignalsRequestSchema)))).toBe(false);
});
