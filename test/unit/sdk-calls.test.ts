import { afterEach, beforeEach, expect, test } from "bun:test";
import { type Client, createClient, createFunction } from "../../src/sdk/index.ts";
import { type FakeServer, startFakeServer } from "../support/fake-server.ts";
import { entry, run, secret, secretRead } from "../support/sdk-answers.ts";

let server: FakeServer;
let client: Client;
beforeEach(() => {
  server = startFakeServer();
  client = createClient({ url: server.url, apiKey: "ifkey_test" });
});
afterEach(() => server.stop());

interface Case {
  call: () => Promise<unknown>;
  method?: string;
  path: string;
  sent?: unknown;
  answer?: unknown;
  read?: unknown;
}

const child = createFunction<{ c: { n: number } }, "c", number>({ id: "child" }, ({ event }) => event.data.n);

const repair = {
  ...{
    id: "rep_1",
    action: "resume",
    status: "running",
    phase: "work",
    counts: { done: "3" },
    startedBy: "ak_1",
  },
  createdAt: "2026-01-01T00:00:00Z",
};
const repairRead = {
  ...{
    id: "rep_1",
    action: "resume",
    status: "running",
    phase: "work",
    reason: "",
    startedBy: "ak_1",
    note: "",
  },
  counts: { pending: 0, done: 3, over: 0, refused: 0, failed: 0, undone: 0 },
  createdAt: "2026-01-01T00:00:00Z",
};

const cases: Record<string, Case> = {
  "repairs.preview": {
    call: () => client.repairs.preview("resume", { functionId: "f", since: new Date(0) }),
    path: "/svc.v1.RepairService/PreviewRepair",
    sent: { action: "resume", filter: { functionId: "f", since: "1970-01-01T00:00:00.000Z" } },
    answer: { totalCount: "2", byStatus: { failed: "2" }, samples: [{ runId: "run_1", status: "failed" }] },
    read: { totalCount: 2, truncated: false, byStatus: { failed: 2 }, samples: [{ runId: "run_1" }] },
  },
  "repairs.start": {
    call: () =>
      client.repairs.start("patch", { filter: { eventId: "evt_1" }, step: "a", output: 7, reason: "why" }),
    path: "/svc.v1.RepairService/StartRepair",
    sent: { action: "patch", filter: { eventId: "evt_1" }, step: "a", outputJson: "7", reason: "why" },
    answer: repair,
    read: repairRead,
  },
  "repairs.previewReplay": {
    call: () => client.repairs.previewReplay(child, { pattern: "a.*", from: 7, to: "2026-01-01T00:00:00Z" }),
    path: "/svc.v1.RepairService/PreviewReplay",
    sent: {
      functionId: "child",
      events: { pattern: "a.*", fromPosition: 7, until: "2026-01-01T00:00:00Z" },
    },
    answer: { fromPosition: "7", toPosition: "9", scanned: "3", matched: "2", withRun: "1", toStart: "1" },
    read: {
      ...{ fromPosition: 7, toPosition: 9, scanned: 3, truncated: false },
      ...{ matched: 2, withRun: 1, toStart: 1, samples: [] },
    },
  },
  "repairs.replayEvents": {
    call: () => client.repairs.replayEvents("f", { again: true, thenLive: true, reason: "why" }),
    path: "/svc.v1.RepairService/StartReplay",
    sent: { functionId: "f", events: { again: true }, thenLive: true, reason: "why" },
    answer: {
      ...repair,
      action: "replay",
      position: "4",
      fromPosition: "5",
      toPosition: "9",
      liveFrom: "10",
    },
    read: {
      ...{ ...repairRead, action: "replay", counts: { ...repairRead.counts, skipped: 0, scanned: 0 } },
      replay: { position: 4, fromPosition: 5, toPosition: 9, liveFrom: 10 },
    },
  },
  "repairs.items": {
    call: () => client.repairs.items("rep_1", { outcome: "done", limit: 5 }),
    path: "/svc.v1.RepairService/ListRepairItems",
    sent: { id: "rep_1", outcome: "done", limit: 5 },
    answer: { items: [{ runId: "run_1", outcome: "done", eventId: "evt_1" }], nextCursor: "c" },
    read: { items: [{ runId: "run_1", outcome: "done", error: "", eventId: "evt_1" }], nextCursor: "c" },
  },
  "repairs.list": {
    call: () => client.repairs.list({ limit: 1 }),
    path: "/svc.v1.RepairService/ListRepairs",
    sent: { limit: 1 },
    answer: { repairs: [repair] },
    read: { repairs: [repairRead], nextCursor: "" },
  },
  ...Object.fromEntries(
    (["get", "pause", "continue", "stop"] as const).map((verb): [string, Case] => [
      `repairs.${verb}`,
      {
        call: () => client.repairs[verb]("rep_1"),
        path: `/svc.v1.RepairService/${verb[0]!.toUpperCase()}${verb.slice(1)}Repair`,
        sent: { id: "rep_1" },
        answer: repair,
        read: repairRead,
      },
    ]),
  ),
  invokeFunction: {
    call: () => client.invokeFunction(child, { n: 1 }, { idempotencyKey: "k" }),
    path: "/svc.v1.SvcService/InvokeFunction",
    sent: { functionId: "child", data: { n: 1 }, idempotencyKey: "k" },
    answer: { runId: "run_1", eventId: "evt_1" },
    read: { runId: "run_1", eventId: "evt_1" },
  },
  invokeFunctionSync: {
    call: () => client.invokeFunctionSync("child", [1], { timeoutMs: 50 }),
    path: "/svc.v1.SvcService/InvokeFunctionSync",
    sent: { functionId: "child", dataValue: [1], timeoutMs: 50 },
    answer: {
      result: { runId: "run_1", functionId: "child", status: "RUN_STATUS_COMPLETED", outputValue: 5 },
    },
    read: {
      runId: "run_1",
      functionId: "child",
      status: "completed",
      output: 5,
      durationMs: 0,
      waitTimedOut: false,
    },
  },
  triggerSync: {
    call: () => client.triggerSync("e", { a: 1 }),
    path: "/svc.v1.SvcService/TriggerSync",
    sent: { event: "e", data: { a: 1 }, timeoutMs: 30_000 },
    answer: { eventId: "evt_1", results: [{ runId: "r", status: "RUN_STATUS_RUNNING", waitTimedOut: true }] },
    read: {
      eventId: "evt_1",
      results: [{ runId: "r", status: "running", waitTimedOut: true, output: null }],
    },
  },
  publish: {
    call: () => client.publish("news", "x"),
    path: "/svc.v1.PubSubService/Publish",
    sent: { topic: "news", dataValue: "x" },
    answer: { eventId: "evt_1", sequence: "7" },
    read: { eventId: "evt_1", sequence: 7 },
  },
  cancelRun: {
    call: () => client.cancelRun("run_1", { reason: "why" }),
    path: "/svc.v1.SvcService/CancelRun",
    sent: { id: "run_1", reason: "why" },
    answer: run,
    read: { id: "run_1", status: "paused", pauseReason: "injection", parentRunId: "run_0" },
  },
  pauseRun: {
    call: () => client.pauseRun("run_1"),
    path: "/svc.v1.SvcService/PauseRun",
    sent: { runId: "run_1" },
    answer: { status: "pause_requested" },
    read: "pause_requested",
  },
  getPausedState: {
    call: () => client.getPausedState("run_1"),
    path: "/svc.v1.SvcService/GetPausedState",
    sent: { runId: "run_1" },
    answer: {
      steps: [{ id: "step_1", name: "a", output: `{"n":1}`, injected: true }],
      nextStepHint: "b",
      next_step_hint: "b",
      pauseReason: "injection",
    },
    read: {
      steps: [{ id: "step_1", name: "a", output: { n: 1 }, injected: true }],
      nextStepHint: "b",
      pauseReason: "injection",
    },
  },
  injectStepOutput: {
    call: () => client.injectStepOutput("run_1", "step_1", { n: 2 }, { reason: "why" }),
    path: "/svc.v1.SvcService/InjectStepOutput",
    sent: { runId: "run_1", stepId: "step_1", newOutput: `{"n":2}`, reason: "why" },
    answer: { stepId: "step_1", previousOutput: "5" },
    read: { stepId: "step_1", previousOutput: 5 },
  },
  patchStep: {
    call: () => client.patchStep("step_1", [1]),
    path: "/svc.v1.SvcService/PatchStep",
    sent: { stepId: "step_1", outputValue: [1], reason: "" },
    answer: { id: "step_1", stepType: "STEP_TYPE_INVOKE", status: "STEP_STATUS_COMPLETED", patchedBy: "ada" },
    read: { id: "step_1", type: "invoke", status: "completed", patchedBy: "ada" },
  },
  resumeRun: {
    call: () => client.resumeRun("run_1", { fromStep: "step_1" }),
    path: "/svc.v1.SvcService/ResumeRun",
    sent: { runId: "run_1", fromStep: "step_1" },
    answer: run,
    read: { id: "run_1" },
  },
  "runs.deleteMany": {
    call: () =>
      client.runs.deleteMany({ functionId: "f", statuses: ["failed"], until: new Date(0), limit: 5 }),
    path: "/svc.v1.SvcService/DeleteRuns",
    sent: { functionId: "f", statuses: ["RUN_STATUS_FAILED"], until: "1970-01-01T00:00:00.000Z", limit: 5 },
    answer: { deleted: 5, hasMore: true },
    read: { deleted: 5, hasMore: true },
  },
  "runs.redact": {
    call: () => client.runs.redact("run_1", { reason: "why" }),
    path: "/svc.v1.SvcService/RedactRun",
    sent: { runId: "run_1", reason: "why" },
    answer: { redactedAt: "t", redactedBy: "user_1", eventId: "evt_1", unredactedEventIds: ["evt_1"] },
    read: {
      ...{ redactedAt: "t", redactedBy: "user_1", eventId: "evt_1" },
      ...{ eventRedacted: false, unredactedEventIds: ["evt_1"] },
    },
  },
  "events.redact": {
    call: () => client.events.redact("evt_1", { reason: "why" }),
    path: "/svc.v1.SvcService/RedactEvent",
    sent: { eventId: "evt_1", reason: "why" },
    answer: { redactedAt: "t" },
    read: { redactedAt: "t" },
  },
  listFunctionHistory: {
    call: () => client.listFunctionHistory("f", { limit: 5, fromVersion: 4 }),
    path: "/svc.v1.SvcService/ListFunctionHistory",
    sent: { functionId: "f", limit: 5, fromVersion: "4" },
    answer: { entries: [entry], hasMore: true },
    read: {
      hasMore: true,
      entries: [
        { entityVersion: 3, changeType: "update", function: { id: "f", mode: "push", status: "active" } },
      ],
    },
  },
  getFunctionAtVersion: {
    call: () => client.getFunctionAtVersion("f", 3),
    path: "/svc.v1.SvcService/GetFunctionAtVersion",
    sent: { functionId: "f", version: "3" },
    answer: { entry },
    read: { eventId: "evt_1", function: { version: 2 } },
  },
  rollbackFunction: {
    call: () => client.rollbackFunction("f", 3, { changeReason: "oops" }),
    path: "/svc.v1.SvcService/RollbackFunction",
    sent: { functionId: "f", version: "3", changeReason: "oops" },
    answer: { function: { id: "f", version: 5, status: "FUNCTION_STATUS_PAUSED" } },
    read: { id: "f", version: 5, status: "paused" },
  },
  info: { call: () => client.info(), path: "/svc.v1.SvcService/Info", sent: {}, answer: { version: "1" } },
  "secrets.list": {
    call: () => client.secrets.list(),
    method: "GET",
    path: "/api/v1/secrets",
    answer: [secret],
    read: [secretRead],
  },
  "secrets.get": {
    call: () => client.secrets.get("A B"),
    method: "GET",
    path: "/api/v1/secrets/A%20B",
    answer: secret,
    read: secretRead,
  },
  "secrets.create": {
    call: () => client.secrets.create("TOKEN", "v", { description: "d" }),
    path: "/api/v1/secrets",
    sent: { name: "TOKEN", value: "v", description: "d" },
    answer: { ...secret, description: "d" },
    read: { ...secretRead, description: "d" },
  },
  "secrets.set": {
    call: () => client.secrets.set("TOKEN", "v"),
    method: "PUT",
    path: "/api/v1/secrets/TOKEN",
    sent: { value: "v" },
    answer: secret,
    read: secretRead,
  },
  "secrets.update": {
    call: () => client.secrets.update("TOKEN", { name: "OTHER" }),
    method: "PATCH",
    path: "/api/v1/secrets/TOKEN",
    sent: { name: "OTHER" },
    answer: secret,
  },
  "webhooks.sources.create": {
    call: () => client.webhooks.sources.create({ eventPrefix: "gh", preset: "github", secret: "s" }),
    path: "/svc.v1.WebhookService/CreateWebhookSource",
    sent: { eventPrefix: "gh", preset: "github", verifySecret: "s" },
    answer: { id: "whs_1", eventPrefix: "gh", verifySecretSet: true, ingestToken: "ifwh_1", metadata: {} },
    read: { id: "whs_1", secretSet: true, ingestToken: "ifwh_1" },
  },
  "webhooks.sources.update": {
    call: () =>
      client.webhooks.sources.update("whs_1", { name: "n", expectedUpdatedAt: "2026-01-01T00:00:00Z" }),
    path: "/svc.v1.WebhookService/UpdateWebhookSource",
    sent: { id: "whs_1", name: "n", expectedUpdatedAt: "2026-01-01T00:00:00Z" },
    answer: { id: "whs_1", name: "n" },
    read: { id: "whs_1", name: "n", metadata: {} },
  },
  "webhooks.sources.test": {
    call: () => client.webhooks.sources.test({ sourceId: "whs_1", secret: "s", body: "{}", headers: {} }),
    path: "/svc.v1.WebhookService/TestWebhookVerifyConfig",
    sent: { sourceId: "whs_1", verifySecret: "s", body: "{}", headers: {} },
    answer: { error: "no signature fits", presentedSignatures: ["00"] },
    read: { verified: false, error: "no signature fits", presentedSignatures: ["00"] },
  },
  "webhooks.sources.deliveries": {
    call: () => client.webhooks.sources.deliveries("whs_1", { status: "failed" }),
    path: "/svc.v1.WebhookService/ListWebhookDeliveries",
    sent: { sourceId: "whs_1", status: "failed" },
    answer: { deliveries: [{ id: "whd_1", status: "failed", error: "no", eventId: "" }], totalCount: 1 },
    read: [{ id: "whd_1", status: "failed", error: "no", duplicate: false }],
  },
  "webhooks.endpoints.resume": {
    call: () => client.webhooks.endpoints.resume("whe_1", { skipEventId: "evt_1" }),
    path: "/svc.v1.WebhookEndpointService/ResumeWebhookEndpoint",
    sent: { id: "whe_1", skipEventId: "evt_1" },
    answer: { id: "whe_1", status: "active", position: "12" },
    read: { id: "whe_1", status: "active", position: 12, behind: 0, attempts: 0, deadLetters: 0 },
  },
  "webhooks.endpoints.deadLetters": {
    call: () => client.webhooks.endpoints.deadLetters("whe_1"),
    path: "/svc.v1.WebhookEndpointService/ListWebhookDeadLetters",
    sent: { endpointId: "whe_1" },
    answer: { deadLetters: [{ eventId: "evt_1", sequence: "3" }] },
    read: [{ eventId: "evt_1", sequence: 3, redelivering: false }],
  },
  "alerts.rules.put": {
    call: () =>
      client.alerts.rules.put({
        ...{ name: "mail", condition: "run_failed", targets: [{ type: "email", to: ["a@b.test"] }] },
      }),
    path: "/svc.v1.AlertService/PutAlertRule",
    sent: { name: "mail", condition: "run_failed", targets: [{ type: "email", to: ["a@b.test"] }] },
    answer: { name: "mail", condition: "run_failed", targets: [{ type: "email", to: ["a@b.test"] }] },
    read: { name: "mail", targets: [{ type: "email", to: ["a@b.test"] }], repeatAfterMs: 0 },
  },
  "alerts.list": {
    call: () => client.alerts.list({ state: "open" }),
    path: "/svc.v1.AlertService/ListAlerts",
    sent: { state: "open" },
    answer: { alerts: [{ id: "alr_1", count: 7, deliveries: [{ state: "given_up", lastError: "no" }] }] },
    read: { alerts: [{ id: "alr_1", count: 7, deliveries: [{ state: "given_up", lastError: "no" }] }] },
  },
  "secrets.delete": {
    call: () => client.secrets.delete("TOKEN"),
    method: "DELETE",
    path: "/api/v1/secrets/TOKEN",
  },
};

test.each(Object.entries(cases))(
  "%s",
  async (_, { call, method = "POST", path, sent, answer = {}, read }) => {
    server.fail(path, { status: 200, body: answer });
    const answered = await call();
    expect(server.requests).toHaveLength(1);
    expect(server.requests[0]).toMatchObject({ method, path, ...(sent !== undefined && { body: sent }) });
    if (typeof read === "object") expect(answered).toMatchObject(read as object);
    else if (read !== undefined) expect(answered).toBe(read);
  },
);

test("what changes something is repeated only when the server certainly did not do it", async () => {
  server.fail("CancelRun", { status: 500 }, 3);
  await expect(client.cancelRun("run_1")).rejects.toMatchObject({ status: 500 });
  expect(server.requests).toHaveLength(1);
  server.fail("PauseRun", { status: 503 }, 2);
  server.fail("PauseRun", { status: 200, body: { status: "paused" } });
  expect(await client.pauseRun("run_1")).toBe("paused");
  expect(server.requests).toHaveLength(4);
});

test("a synchronous call can be given up", async () => {
  const stop = new AbortController();
  const call = client.invokeFunctionSync("child", {}, { signal: stop.signal });
  stop.abort();
  await expect(call).rejects.toMatchObject({ code: "aborted_by_caller" });
});
