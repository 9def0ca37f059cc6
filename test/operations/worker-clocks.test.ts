import { afterAll, beforeAll, expect, test } from "bun:test";
import { resolve } from "node:path";
import { type Client, createClient, createFunction, createWorker } from "../../src/sdk/index.ts";
import { startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

let server: TestServer;
let client: Client;
const programs: Bun.Subprocess[] = [];

beforeAll(async () => {
  server = await startTestServer({ engine: "libsql" });
  client = createClient({ url: server.url, apiKey: server.adminKey });
});
afterAll(async () => {
  for (const program of programs) program.kill("SIGKILL");
  await server.stop();
});

const wrong = [
  { id: "ahead", offMs: 600_000, transport: "rest" },
  { id: "behind", offMs: -600_000, transport: "stream" },
] as const;

test("sleeps and waits go by the server's clock; a worker whose clock is wrong is told and shown", async () => {
  for (const { id, offMs, transport } of wrong) {
    const [preload, script] = ["wrong-clock.ts", "napping-worker.ts"].map((name) =>
      resolve(import.meta.dir, "../support", name),
    );
    const command = [
      process.execPath,
      "--preload",
      preload!,
      script!,
      server.url,
      server.adminKey,
      id,
      transport,
    ];
    const env = { ...process.env, WRONG_CLOCK_MS: String(offMs) };
    programs.push(Bun.spawn(command, { env, stdout: "inherit", stderr: "inherit" }));
  }
  const right = createFunction({ id: "right" }, () => 1);
  const worker = createWorker({ client, functions: [right], workerId: "right", handleSignals: false });
  await worker.start();
  const listed = () =>
    server.api("/api/v1/workers").then(({ body }) => body.workers as Record<string, unknown>[]);
  await until(async () => (await listed()).length === 3, { about: "the workers" });
  for (const { id, clock_off_ms } of await listed()) {
    const { offMs = 0 } = wrong.find((one) => one.id === id) ?? {};
    if (offMs === 0) expect(clock_off_ms).toBeUndefined();
    else expect(Math.abs(Number(clock_off_ms) - offMs)).toBeLessThan(20_000);
  }
  for (const { id } of wrong) {
    const [runId = ""] = (await client.emit(id, {})).runIds;
    const run = await client.waitForRun(runId);
    expect(run).toMatchObject({ status: "completed", output: 1 });
    const [nap, wait, any] = (await server.rpc("SvcService", "GetRunSteps", { runId })).body.steps;
    expect(Date.parse(nap.sleepUntil) - Date.parse(nap.startedAt)).toBe(1_000);
    expect(Date.parse(wait.waitTimeout) - Date.parse(wait.startedAt)).toBe(1_000);
    expect(Date.parse(any.waitTimeout) - Date.parse(any.startedAt)).toBe(200);
    expect([wait.status, any.status]).toEqual(["STEP_STATUS_TIMED_OUT", "STEP_STATUS_TIMED_OUT"]);
  }
  worker.stop();
}, 120_000);
