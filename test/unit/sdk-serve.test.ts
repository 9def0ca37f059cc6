import { afterAll, beforeAll, beforeEach, expect, test } from "bun:test";
import { createHmac } from "node:crypto";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Job } from "../../src/domain/engine/jobs/rules.ts";
import { requestBody } from "../../src/domain/engine/push/rules.ts";
import { createFunction, NonRetryableError, serve, toNodeHandler } from "../../src/sdk/index.ts";
import { type FakeServer, startFakeServer } from "../support/fake-server.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };
const key = "a signing key that is long enough";
let server: FakeServer;
let ran: string[] = [];
beforeAll(() => {
  server = startFakeServer();
});
afterAll(() => server.stop());
beforeEach(() => {
  ran = [];
});

const order = createFunction({ id: "order", event: "placed" }, async ({ event, step, secrets }) => {
  const a = await step.run("a", () => ran.push("a"));
  await step.sleep("nap", "1h");
  const data = event.data as { fail?: boolean };
  await step.run("b", () => {
    ran.push("b");
    if (data.fail) throw new NonRetryableError("no", { code: "NO" });
  });
  return { a, secret: secrets.TOKEN ?? null };
});

const gathered = createFunction(
  { id: "gathered", event: "placed", batch: { size: 9, timeoutMs: 1_000 } },
  ({ event, events }) => [event.id, ...events.map(({ data }) => data)],
);

const raced = createFunction({ id: "raced", event: "placed" }, ({ step }) =>
  Promise.race([
    step.run("hang", () => new Promise(() => {})),
    step.sleep("limit", 5).then(() => "too late"),
  ]),
);

const handler = () =>
  serve({
    url: server.url,
    environment: "env_a",
    functions: [order, gathered, raced],
    signingKey: key,
    log: silent,
  });
const body = (more: object = {}) =>
  JSON.stringify({
    run_id: "run_1",
    function_id: "order",
    attempt: 1,
    event: { id: "evt_1", name: "placed", data: {}, timestamp: "2026-01-02T03:04:05Z", version: 1 },
    steps: null,
    ...more,
  });
const hmac = (text: string, with_ = key) => createHmac("sha256", with_).update(text).digest("hex");
const now = () => Math.floor(Date.now() / 1_000);
const signed = (text: string, t = now()) => `sha256=${hmac(text)},t=${t},v1=${hmac(`${t}.${text}`)}`;
async function ask(text: string, signature: string | null = signed(text), method = "POST") {
  const response = await handler()(
    new Request("http://endpoint/api/svc", {
      method,
      headers: signature === null ? {} : { "x-svc-signature": signature },
      ...(method === "POST" && { body: text }),
    }),
  );
  return { status: response.status, headers: response.headers, body: (await response.json()) as never };
}

test("a batch comes as the server writes it; without one there is one event", async () => {
  const stored = (id: string, data: number) => ({
    ...{ id, name: "placed", version: 1, data: String(data), metadata: null, source: "api" },
    ...{ at: 1, idempotency_key: null, position: data },
  });
  const events = [stored("evt_1", 1), stored("evt_2", 2)];
  const job = {
    ...{ runId: "run_1", functionId: "gathered", attempt: 1, event: events[0]!, completedSteps: [] },
    ...{ events, compensating: null },
  } as unknown as Job;
  expect((await ask(requestBody(job, { compensates: false, openWaits: false }))).body).toMatchObject({
    result: ["evt_1", 1, 2],
  });
  const { events: _, ...alone } = job;
  expect((await ask(requestBody(alone, { compensates: false, openWaits: false }))).body).toMatchObject({
    result: ["evt_1", 1],
  });
});

test("a first call runs to the yield, a second one continues behind it, only what it did is told", async () => {
  const first = await ask(body({ secrets: { TOKEN: "t" } }));
  expect(first.headers.get("x-svc-environment")).toBe("env_a");
  expect(first).toMatchObject({
    status: 200,
    body: {
      status: "yielded",
      steps: [{ id: "run_1:a:0", name: "a", type: "invoke", status: "completed", output: 1 }],
      yield: { type: "sleep", step_id: "run_1:nap:0" },
    },
  });
  const steps = [{ id: "run_1:a:0", name: "a", status: "completed", output: 1 }];
  const resume = { step_id: "run_1:nap:0", type: "sleep" };
  const second = await ask(body({ steps, resume, secrets: { TOKEN: "t" } }));
  expect(second.body).toMatchObject({
    status: "completed",
    steps: [{ id: "run_1:b:0", status: "completed" }],
    result: { a: 1, secret: "t" },
  });
  expect(ran).toEqual(["a", "b"]);
});

test("a failure names its step, code and whether to try again", async () => {
  const steps = ["a", "nap"].map((name) => ({ id: `run_1:${name}:0`, name, status: "completed", output: 1 }));
  const event = {
    id: "e",
    name: "placed",
    data: { fail: true },
    timestamp: "2026-01-02T03:04:05Z",
    version: 1,
  };
  expect((await ask(body({ steps, event }))).body).toMatchObject({
    status: "failed",
    steps: [{ id: "run_1:b:0", status: "failed" }],
    error: { message: "no", code: "NO", step_id: "run_1:b:0", retryable: false },
  });
});

test("what a handler sets is in the answer", async () => {
  const found = createFunction({ id: "found" }, ({ run }) => {
    run.set({ a: 1 });
    run.set({ b: new Date(0) });
  });
  const handle = serve({ functions: [found], signingKey: null, log: silent });
  const request = new Request("http://endpoint/", { method: "POST", body: body({ function_id: "found" }) });
  expect(await (await handle(request)).json()).toMatchObject({
    status: "completed",
    attributes: { a: 1, b: { time: "1970-01-01T00:00:00.000Z" } },
  });
});

test("a failed row, its error as text, is an error that is not retried", async () => {
  const parent = createFunction({ id: "parent" }, ({ step }) => step.invoke("child"));
  const handle = serve({ functions: [parent], signingKey: null, log: silent });
  const error = JSON.stringify({ function_id: "child", child_run_id: "run_2", message: "broke" });
  const response = await handle(
    new Request("http://endpoint/", {
      method: "POST",
      body: body({
        function_id: "parent",
        steps: [{ id: "run_1:child:0", name: "child", status: "failed", error }],
      }),
    }),
  );
  expect(await response.json()).toMatchObject({
    status: "failed",
    steps: [],
    error: { code: "INVOKE_FAILED", message: "step child failed: broke", retryable: false },
  });
});

test("both signatures count, neither may be wrong, old or missing", async () => {
  const text = body();
  const t = now();
  const cases: [string | null, number, string?][] = [
    [signed(text), 200],
    [`t=${t},v1=${hmac(`${t}.${text}`)}`, 200],
    [`sha256=${hmac(text)}`, 200],
    [null, 401, "SIGNATURE_MISSING"],
    ["", 401, "SIGNATURE_MISSING"],
    ["nonsense", 401, "SIGNATURE_INVALID"],
    [`sha256=${hmac(`${text} `)}`, 401, "SIGNATURE_INVALID"],
    [`sha256=${hmac(text)},t=${t},v1=${hmac(text)}`, 401, "SIGNATURE_INVALID"],
    [signed(text, t - 301), 401, "SIGNATURE_INVALID"],
    [signed(text, t + 310), 401, "SIGNATURE_INVALID"],
    [signed(text, t - 290), 200],
    [`t=${t},v1=`, 401, "SIGNATURE_INVALID"],
    [`t=${t},v1=${hmac(`${t}.${text}`, "another key")}`, 401, "SIGNATURE_INVALID"],
  ];
  for (const [header, status, code] of cases) {
    const answer = await ask(text, header);
    expect([header, answer.status]).toEqual([header, status]);
    if (code) expect(answer.body).toMatchObject({ error: { code, message: expect.any(String) } });
  }
});

test("what is no call is refused by the table", async () => {
  const cases: [string, number, string][] = [
    ["{", 400, "INVALID_JSON"],
    ["[]", 400, "VALIDATION_ERROR"],
    [body({ run_id: 5 }), 400, "VALIDATION_ERROR"],
    [body({ attempt: 0 }), 400, "VALIDATION_ERROR"],
    [body({ event: null }), 400, "VALIDATION_ERROR"],
    [body({ steps: [{ id: "x", status: "odd" }] }), 400, "VALIDATION_ERROR"],
    [body({ secrets: { a: 1 } }), 400, "VALIDATION_ERROR"],
    [body({ function_id: "nobody" }), 404, "FUNCTION_NOT_FOUND"],
  ];
  for (const [text, status, code] of cases)
    expect(await ask(text)).toMatchObject({ status, body: { error: { code } } });
  expect(await ask("", null, "GET")).toMatchObject({ status: 405 });
  expect(() => serve({ functions: [order] })).toThrow("SVC_SIGNING_KEY");
  expect(ran).toEqual([]);
});

test("a sleep beside a step that computes is over in time, and reported as servers take it of endpoints", async () => {
  expect((await ask(body({ function_id: "raced" }))).body).toMatchObject({
    ...{ status: "completed", result: "too late" },
    steps: [{ id: "run_1:limit:0", type: "invoke", status: "completed" }],
  });
});

test("registers its functions for push", async () => {
  await handler().register("https://example.com/api/svc");
  expect(server.functions.get("order")).toMatchObject({
    preferredMode: "EXECUTION_MODE_PUSH",
    endpointUrl: "https://example.com/api/svc",
    metadata: { __svc_code_hash: expect.stringMatching(/^[0-9a-f]{16}$/) },
  });
});

test("behind node:http the same, byte for byte", async () => {
  const listener = createServer(toNodeHandler(handler()));
  await new Promise<void>((done) => listener.listen(0, "127.0.0.1", done));
  const { port } = listener.address() as AddressInfo;
  try {
    const text = body({ event: { id: "é", name: "placed", data: "ü", timestamp: "x", version: 1 } });
    const response = await fetch(`http://127.0.0.1:${port}/x`, {
      method: "POST",
      body: text,
      headers: { "x-svc-signature": signed(text) },
    });
    expect(response.status).toBe(200);
    expect(response.headers.get("x-svc-environment")).toBe("env_a");
    expect(await response.json()).toMatchObject({ status: "yielded" });
  } finally {
    listener.close();
  }
});

test("webhooks are verified, transformed and emitted, and say what went wrong", async () => {
  const handle = serve({
    url: server.url,
    functions: [],
    log: silent,
    webhooks: {
      shop: {
        verify: ({ headers }) => headers.get("x-shop") === "yes",
        transform: ({ text }) => ({ name: "shop.paid", data: JSON.parse(text), idempotencyKey: "m1" }),
      },
    },
  });
  const post = async (id: string, text: string, shop = "yes") => {
    const request = new Request(`http://endpoint/webhooks/${id}`, {
      method: "POST",
      body: text,
      headers: { "x-shop": shop },
    });
    const response = await handle(request);
    return [response.status, await response.json()] as const;
  };
  expect(await post("shop", `{"n":1}`)).toEqual([200, { status: "accepted", event: "shop.paid" }]);
  expect(server.requests.at(-1)?.body).toEqual({
    event: "shop.paid",
    data: { n: 1 },
    idempotencyKey: "m1",
    tellUnserved: true,
  });
  expect(await post("shop", "{}", "no")).toMatchObject([401, { error: { code: "VERIFY_FAILED" } }]);
  expect(await post("toString", "{}")).toMatchObject([404, { error: { code: "WEBHOOK_NOT_FOUND" } }]);
  expect(await post("shop", "{")).toMatchObject([400, { error: { code: "TRANSFORM_FAILED" } }]);
  server.fail("Emit", { status: 400, body: { code: "invalid_argument", message: "no" } });
  expect(await post("shop", "{}")).toMatchObject([502, { error: { code: "EMIT_FAILED" } }]);
});
