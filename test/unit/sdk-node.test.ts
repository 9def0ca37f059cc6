import { afterEach, expect, test } from "bun:test";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createClient } from "../../src/sdk/index.ts";
import { startFakeServer } from "../support/fake-server.ts";
import { until } from "../support/until.ts";

const program = `
import { createFunction, createWorker } from "./index.js";
const greet = createFunction({ id: "greet", event: "hello" }, async ({ event, step }) => {
  const name = await step.run("name", () => event.data.name);
  await step.sleep("think", "20ms");
  return step.run("greeting", () => "hello " + name);
});
await createWorker({ functions: [greet] }).start();
console.log("ready");
`;

const endpoint = `
import { createServer } from "node:http";
import { createFunction, serve, testFunction, toNodeHandler } from "./index.js";
const wide = createFunction({ id: "wide", event: "hello" }, async ({ event, step }) => {
  const both = await step.parallel("both", {
    a: async () => { await step.sleep("nap", "1h"); return step.run("x", () => event.data.n); },
    b: () => step.map("m", [1, 2], (n) => step.run("x", () => n, { timeout: 1000 })),
  });
  return { ...both, awaited: (await step.waitForEvent("answer")).data };
});
const { output, elapsedMs } = await testFunction(wide).deliver("answer", "yes").crashAfter("every").run({ n: 7 });
const server = createServer(toNodeHandler(serve({ functions: [wide], signingKey: "key" }))).listen(0, async () => {
  const body = JSON.stringify({ run_id: "r", function_id: "wide", attempt: 1,
    event: { id: "e", name: "hello", data: { n: 7 }, timestamp: "2026-01-02T03:04:05Z", version: 1 }, steps: [] });
  const { createHmac } = await import("node:crypto");
  const t = Math.floor(Date.now() / 1000);
  const v1 = createHmac("sha256", "key").update(t + "." + body).digest("hex");
  const url = "http://127.0.0.1:" + server.address().port;
  const ask = (headers) => fetch(url, { method: "POST", body, headers });
  const answer = await (await ask({ "x-svc-signature": "t=" + t + ",v1=" + v1 })).json();
  const { status } = await ask({});
  console.log(JSON.stringify({ output, elapsedMs, yielded: answer.yield.step_id, steps: answer.steps.length, status }));
  server.close();
  server.closeAllConnections();
});
`;

const beside = `
import { createFunction, createWorker } from "./index.js";
const ask = createFunction({ id: "ask", event: "hello" }, async ({ step }) => {
  const answer = step.sleep("think", "20ms").then(() => step.run("answer", () => 42));
  await step.run("ask", () => 1);
  return answer;
});
const worker = createWorker({ functions: [ask], handleSignals: false });
await worker.start();
`;

const busy = `
import { createFunction, createWorker } from "./index.js";
const worker = createWorker({
  functions: [
    createFunction({ id: "busy", event: "work" }, () => {
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 2000);
      setTimeout(() => worker.drain());
    }),
  ],
  handleSignals: false,
});
await worker.start();
`;

const caller = `
import { createServer } from "node:http";
import { createClient } from "./index.js";
const connections = new Set();
const behind = createServer((request, response) => {
  const pieces = [];
  request.on("data", (piece) => pieces.push(piece));
  request.on("end", () => {
    const body = JSON.parse(Buffer.concat(pieces).toString());
    if (body.event === "slow") return;
    if (body.event === "cut") return response.socket.destroy();
    if (body.event === "refused") {
      response.writeHead(400, { "content-type": "application/json" });
      return response.end(JSON.stringify({ code: "invalid_argument", message: "data: ä" }));
    }
    response.setHeader("x-svc-sequence", "e.7");
    response.end(JSON.stringify({ eventId: body.data.note, runIds: [request.method] }));
  });
});
behind.on("connection", (socket) => connections.add(socket));
const listening = (server) => new Promise((done) => server.listen(0, "127.0.0.1", () => done("http://127.0.0.1:" + server.address().port)));
const url = await listening(behind);
const front = createServer((request, response) => response.writeHead(308, { location: url + request.url }).end());
const codeOf = (asked) => asked.then(() => "ok", ({ code, retryable, message }) => [code, retryable ?? false, message.includes("ä")].join(" "));
const client = createClient({ url, timeoutMs: 500 });
const emit = (of, event, note) => of.emit(event, { note });
const note = "\u{1f600} ".repeat(40_000);
const long = (await emit(client, "asked", note)).eventId === note;
for (let sent = 0; sent < 20; sent++) await emit(client, "asked", "x");
const alone = connections.size;
const redirected = await emit(createClient({ url: await listening(front) }), "asked", "y");
const closed = createClient({ url: "http://127.0.0.1:1" });
const said = {
  long, alone, redirected,
  refused: await codeOf(emit(client, "refused")),
  slow: await codeOf(emit(client, "slow")),
  cut: await codeOf(emit(client, "cut")),
  away: await codeOf(emit(closed, "asked")),
};
console.log(JSON.stringify(said));
// A connection that is kept alive must not keep the program.
behind.unref();
front.unref();
for (const socket of connections) socket.unref();
`;

const folders: string[] = [];
afterEach(async () => {
  for (const folder of folders.splice(0)) await rm(folder, { recursive: true, force: true });
});

/** Node, and a folder with the SDK built for it. */
async function built(program: string): Promise<{ node: string; path: string }> {
  const node = Bun.which("node");
  if (node === null) throw new Error("node was not found. Install it: apt-get install nodejs");
  const folder = await mkdtemp(join(tmpdir(), "svc-sdk-"));
  folders.push(folder);
  const { success, outputs } = await Bun.build({
    entrypoints: ["src/sdk/index.ts"],
    target: "node",
    outdir: folder,
  });
  expect(success).toBe(true);
  expect(await outputs[0]!.text()).not.toMatch(/\bBun\.|\brequire\(/);
  await Bun.write(join(folder, "program.mjs"), program);
  return { node, path: join(folder, "program.mjs") };
}

type FakeServer = ReturnType<typeof startFakeServer>;

/** A program on Node beside a server of the test's, both gone after the work. */
async function onNode(
  program: string,
  options: Parameters<typeof startFakeServer>[0],
  work: (running: { server: FakeServer; child: Bun.Subprocess }) => Promise<void>,
): Promise<void> {
  const { node, path } = await built(program);
  const server = startFakeServer(options);
  const child = Bun.spawn([node, path], {
    env: { PATH: process.env.PATH, SVC_SERVER_URL: server.url },
    stdout: "ignore",
    stderr: "inherit",
  });
  try {
    await work({ server, child });
  } finally {
    child.kill("SIGKILL");
    await child.exited;
    await server.stop();
  }
}

test("built for Node, a worker runs there, durable steps and all, and leaves on SIGTERM", async () => {
  await onNode(program, {}, async ({ server, child }) => {
    await until(() => server.functions.has("greet"), { about: "the worker to register" });
    const { runIds } = await createClient({ url: server.url }).emit("hello", { name: "you" });
    const run = await until(
      () => server.runs.get(runIds[0]!)?.status === "completed" && server.runs.get(runIds[0]!),
      { about: "the run to complete" },
    );
    expect(run.output).toBe("hello you");
    child.kill("SIGTERM");
    await child.exited;
    expect(child.signalCode).toBe("SIGTERM");
  });
}, 120_000);

test("a promise made of a wait, and awaited later, ends no process", async () => {
  await onNode(beside, {}, async ({ server, child }) => {
    await until(() => server.functions.has("ask"), { about: "the worker to register" });
    const { runIds } = await createClient({ url: server.url }).emit("hello", {});
    const isDone = () => server.runs.get(runIds[0]!)?.status === "completed";
    await until(isDone, { about: "the run to complete" });
    expect(server.runs.get(runIds[0]!)?.output).toBe(42);
    expect(child.exitCode).toBeNull();
  });
}, 120_000);

test("a worker built for Node renews leases while a handler computes, and ends with the last of what it does", async () => {
  await onNode(busy, { leaseMs: 1_000, tellsLease: true }, async ({ server, child }) => {
    await until(() => server.functions.has("busy"), { about: "the worker to register" });
    const { runIds } = await createClient({ url: server.url }).emit("work", {});
    const isDone = () => server.runs.get(runIds[0]!)?.status === "completed";
    await until(isDone, { about: "the run to complete", deadlineMs: 20_000 });
    expect(await child.exited).toBe(0);
    const beats = server.requests.filter(({ path }) => path.endsWith("/heartbeat"));
    expect(beats.length).toBeGreaterThan(2);
    expect(beats.every(({ body }) => JSON.stringify(body).includes("job_"))).toBe(true);
  });
}, 120_000);

test("calls of a client built for Node share a connection, follow a redirect, and fail by the same errors", async () => {
  const { node, path } = await built(caller);
  const child = Bun.spawn([node, path], {
    env: { PATH: process.env.PATH },
    stdout: "pipe",
    stderr: "inherit",
  });
  try {
    const said = JSON.parse(await new Response(child.stdout).text());
    expect(said).toEqual({
      ...{ long: true, alone: 1, redirected: { eventId: "y", runIds: ["POST"], sequence: 0 } },
      refused: "invalid_argument false true",
      slow: "timeout true false",
      cut: "unreachable true false",
      away: "unreachable true false",
    });
    expect(await child.exited).toBe(0);
  } finally {
    child.kill("SIGKILL");
    await child.exited;
  }
}, 120_000);

test("endpoints, branches and tests in memory do as well", async () => {
  const { node, path } = await built(endpoint);
  const child = Bun.spawn([node, path], {
    env: { PATH: process.env.PATH },
    stdout: "pipe",
    stderr: "inherit",
  });
  const said = await new Response(child.stdout).text();
  expect(await child.exited).toBe(0);
  expect(JSON.parse(said)).toEqual({
    output: { a: 7, b: [1, 2], awaited: "yes" },
    elapsedMs: 3_600_000,
    yielded: "r:both:0:nap:0",
    steps: 2,
    status: 401,
  });
}, 120_000);
