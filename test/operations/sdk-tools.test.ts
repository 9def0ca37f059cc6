import { afterAll, beforeAll, expect, test } from "bun:test";
import { createHmac } from "node:crypto";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import {
  createClient,
  createFunction,
  createWorker,
  defineTools,
  jsonSchema,
  type StandardSchema,
  serve,
  serveTools,
  testFunction,
} from "../../src/sdk/index.ts";
import { findProgram, removeFolder } from "../support/process.ts";
import { startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const log = { debug() {}, info() {}, warn() {}, error() {} };
const path = "/svc/agent-tools/dispatch";

/** What a schema library would make that changes what it checks. */
const trimmed: StandardSchema<{ text: string }> = {
  "~standard": {
    version: 1,
    vendor: "test",
    validate: (value) => {
      const { text } = value as { text?: unknown };
      if (typeof text !== "string") return { issues: [{ message: "must be a text", path: ["text"] }] };
      return { value: { text: text.trim() } };
    },
  },
};

const support = defineTools("support", {
  refund: {
    description: "Gives money back.",
    input: jsonSchema({
      type: "object",
      properties: { order: { type: "string" }, cents: { type: "integer", minimum: 1 } },
      required: ["order", "cents"],
    }),
    requiredScopes: ["runs:read"],
    timeout: "5s",
    run: ({ order, cents }, { name }) => ({ order, refunded: cents, by: name }),
  },
  shout: { input: trimmed, run: async ({ text }) => text.toUpperCase() },
  broken: {
    run: () => {
      throw new Error("out of order");
    },
  },
});

let server: TestServer;
let options: { url: string; apiKey: string };
let agent: ReturnType<typeof Bun.serve>;
const handler = () => serveTools({ ...options, tools: support, log });
const answer = (served: { current: (request: Request) => Promise<Response> }) =>
  Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: (request) => served.current(request) });

beforeAll(async () => {
  server = await startTestServer({ engine: "libsql", settings: { pushAllowPrivate: ["127.0.0.0/8"] } });
  options = { url: server.url, apiKey: server.adminKey };
  const tools = handler();
  // The handler of functions answers for tools as well.
  agent = answer({ current: serve({ functions: [], tools, log }) });
  await tools.register(`http://127.0.0.1:${agent.port}`);
}, 120_000);
afterAll(async () => {
  await server?.stop();
  agent?.stop(true);
});

test("tools are registered, listed, called with types and unregistered", async () => {
  const { tools } = createClient(options);
  const { refund, shout, broken } = support.tools;
  const made: { refunded: number } = await tools.invoke(refund, { order: "o1", cents: 250 });
  expect(made as object).toEqual({ order: "o1", refunded: 250, by: "support.refund" });
  const loud: string = await tools.invoke(shout, { text: " hello " });
  expect(loud).toBe("HELLO");
  expect(await tools.invoke<string>("support.shout", { text: "a" })).toBe("A");
  const listed = await tools.list();
  expect(listed.map(({ qualifiedName }) => qualifiedName)).toEqual([
    ...["support.broken", "support.refund", "support.shout"],
  ]);
  expect(listed[1]).toMatchObject({
    ...{ description: "Gives money back.", requiredScopes: ["runs:read"] },
    inputSchema: { required: ["order", "cents"] },
  });
  // @ts-expect-error
  const wrong = await tools.invoke(refund, { order: "o1" }).catch((error) => error);
  expect(wrong).toMatchObject({ code: "invalid_argument", field: "input" });
  // The server knows no schema of this one: the agent's own refuses.
  const unfit = await tools.invoke("support.shout", { text: 1 }).catch((error) => error);
  expect(unfit).toMatchObject({ code: "INPUT_SCHEMA_INVALID", message: "text: must be a text" });
  const failed = await tools.invoke(broken, {}).catch((error) => error);
  expect(failed).toMatchObject({ code: "HANDLER_ERROR", message: "out of order" });
  const other = await tools.register(
    { agent: "other", tools: [{ name: "t", timeoutMs: 1_000 }] },
    { callbackUrl: "https://other.example.test" },
  );
  expect(other.names).toEqual(["other.t"]);
  expect(await tools.unregister("other")).toBe(1);
});

test("a handler answers what is signed with its secret and fresh, and nothing else", async () => {
  const secret = "ab".repeat(32);
  const serving = serveTools({ tools: support, secret: ["cd".repeat(32), secret], log });
  const now = Math.floor(Date.now() / 1_000);
  const ask = async (
    text: string,
    given: { key?: string; at?: number; path?: string; method?: string } = {},
  ) => {
    const { key = secret, at = now, method = "POST" } = given;
    const mac = createHmac("sha256", Buffer.from(key, "hex")).update(`${at}.${text}`).digest("hex");
    const response = await serving(
      new Request(`http://agent${given.path ?? path}`, {
        method,
        headers: { "x-svc-timestamp": `${at}`, "x-svc-signature": `sha256=${mac}` },
        ...(method === "POST" && { body: text }),
      }),
    );
    const { output, error } = (await response.json()) as { output?: unknown; error?: { code: string } };
    return [response.status, error?.code ?? output];
  };
  const shout = JSON.stringify({ qualified_name: "support.shout", input: { text: "a" } });
  expect(await ask(shout)).toEqual([200, "A"]);
  expect(await ask(shout, { path: `/under/a/base${path}` })).toEqual([200, "A"]);
  expect(await ask(shout, { key: "ef".repeat(32) })).toEqual([401, "SIGNATURE_MISMATCH"]);
  expect(await ask(shout, { at: now - 310 })).toEqual([401, "TIMESTAMP_SKEW"]);
  expect(await ask(shout, { at: now + 70 })).toEqual([401, "TIMESTAMP_SKEW"]);
  expect(await ask(shout, { path: `${path}/below` })).toEqual([404, "NOT_FOUND"]);
  expect(await ask(shout, { method: "GET" })).toEqual([405, "METHOD_NOT_ALLOWED"]);
  expect(await ask("{")).toEqual([400, "INVALID_REQUEST"]);
  expect(await ask("null")).toEqual([400, "INVALID_REQUEST"]);
  const unknown = JSON.stringify({ qualified_name: "support.toString", input: {} });
  expect(await ask(unknown)).toEqual([401, "SIGNATURE_MISMATCH"]);
  const unsigned = await serving(new Request(`http://agent${path}`, { method: "POST", body: shout }));
  expect(unsigned.status).toBe(401);
  expect(() => serveTools({ tools: support, secret: "not hex" })).toThrow(TypeError);
});

const flow = createFunction(
  { id: "refunds", event: "refund.asked", retry: { maxAttempts: 1 } },
  async (run) => {
    const { order, fails } = run.event.data as { order: string; fails?: boolean };
    const made = await run.step.tool(support.tools.refund, { order, cents: 5 });
    if (fails) await run.step.tool("support.broken");
    return made.refunded;
  },
);

test("step.tool is a step: its output is stored, its error fails the run", async () => {
  const client = createClient(options);
  const worker = createWorker({ client, functions: [flow], log });
  await worker.start();
  try {
    const ended = async (data: object) => {
      const { runIds } = await client.emit("refund.asked", data);
      return client.waitForRun(runIds[0]!);
    };
    const good = await ended({ order: "o1" });
    expect(good).toMatchObject({ status: "completed", output: 5 });
    expect(await client.getRunSteps(good.id)).toMatchObject([
      { name: "tool.support.refund", output: { order: "o1", refunded: 5, by: "support.refund" } },
    ]);
    const bad = await ended({ order: "o2", fails: true });
    expect(bad).toMatchObject({ status: "failed", error: { code: "HANDLER_ERROR" } });
  } finally {
    await worker.stop();
  }
}, 120_000);

test("tests answer tools in memory, and say what they lack", async () => {
  const { refund } = support.tools;
  const answered = testFunction(flow).mockTool(refund, ({ cents }: { cents: number }) => ({
    refunded: 2 * cents,
  }));
  const good = await answered.crashAfter("every").run({ order: "o1" });
  expect(good).toMatchObject({ status: "completed", output: 10 });
  expect(good.toolCalls).toEqual([{ name: "support.refund", input: { order: "o1", cents: 5 } }]);
  const broken = () => {
    throw new Error("out of order");
  };
  const failing = testFunction(flow).mockTool(refund, {}).mockTool("support.broken", broken);
  const bad = await failing.run({ order: "o1", fails: true });
  expect(bad).toMatchObject({
    ...{ status: "failed", error: { code: "HANDLER_ERROR", message: "out of order" } },
  });
  const lacking = await testFunction(flow)
    .run({ order: "o1" })
    .catch((error) => error);
  expect(lacking.message).toContain('mockTool("support.refund"');
});

const program = `
import { createServer } from "node:http";
import { defineTools, jsonSchema, serveTools, toNodeHandler } from "./index.js";
const tools = defineTools("node", {
  add: {
    input: jsonSchema({ type: "object", properties: { a: { type: "number" }, b: { type: "number" } }, required: ["a", "b"] }),
    run: ({ a, b }) => a + b,
  },
});
const handler = serveTools({ tools });
const server = createServer(toNodeHandler(handler)).listen(0, "127.0.0.1", async () => {
  await handler.register("http://127.0.0.1:" + server.address().port + "/base/");
});
`;

test("an agent on Node answers the server", async () => {
  const folder = await mkdtemp(join(tmpdir(), "svc-tools-"));
  const built = await Bun.build({
    entrypoints: [resolve(import.meta.dir, "../../src/sdk/index.ts")],
    target: "node",
    outdir: folder,
  });
  expect(built.success).toBe(true);
  await Bun.write(join(folder, "program.mjs"), program);
  const child = Bun.spawn([findProgram(["node"], "nodejs"), join(folder, "program.mjs")], {
    env: { PATH: process.env.PATH, SVC_SERVER_URL: options.url, SVC_API_KEY: options.apiKey },
    stdout: "ignore",
    stderr: "inherit",
  });
  try {
    const client = createClient(options);
    const isThere = async () =>
      (await client.tools.list()).some(({ qualifiedName }) => qualifiedName === "node.add");
    await until(isThere, { about: "the agent to register", deadlineMs: 20_000 });
    expect(await client.tools.invoke<number>("node.add", { a: 2, b: 3 })).toBe(5);
  } finally {
    child.kill("SIGKILL");
    await child.exited;
    await removeFolder(folder);
  }
}, 120_000);
