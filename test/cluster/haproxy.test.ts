import { expect, test } from "bun:test";
import { readFile, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { createClient, createFunction, createWorker } from "../../src/sdk/index.ts";
import { findHaproxy } from "../support/haproxy.ts";
import { freePort, outputOf, startProgram } from "../support/process.ts";
import { spawnServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const jobsCount = 100;
const reloadsCount = 10;

/** As it ships, for one node, at free ports; what an old process holds is cut after a second. */
async function configAt(folder: string, node: number): Promise<{ file: string; port: number }> {
  const text = await readFile(resolve(import.meta.dir, "../../cluster/haproxy.cfg"), "utf8");
  const [port, http2, stats, away] = [await freePort(), await freePort(), await freePort(), await freePort()];
  const changed = text
    .replace("hard-stop-after 60s", "hard-stop-after 1s")
    .replace("/tmp/svc-haproxy.sock", join(folder, "haproxy.sock"))
    .replace("bind :9000", `bind 127.0.0.1:${port}`)
    .replace("bind :9001", `bind 127.0.0.1:${http2}`)
    .replace("bind 127.0.0.1:9002", `bind 127.0.0.1:${stats}`)
    .replaceAll("127.0.0.1:9123", `127.0.0.1:${node}`)
    .replaceAll(/127\.0\.0\.1:912[45]/g, `127.0.0.1:${away}`);
  const file = join(folder, "haproxy.cfg");
  await writeFile(file, changed);
  return { file, port };
}

test("HAProxy is reloaded ten times under a hundred jobs: none is lost, and none is done twice", async () => {
  const server = await spawnServer({ engine: "libsql", settings: { leaseMs: 5_000 } });
  const { file, port } = await configAt(server.home.folder, Number(new URL(server.url).port));
  const proxy = startProgram([findHaproxy(), "-W", "-db", "-f", file], server.home.folder);
  const url = `http://127.0.0.1:${port}`;
  const workersSeen = async () => (await outputOf(server.home.folder)).split("Loading success").length - 1;
  const done = new Map<number, number>();
  const work = createFunction(
    { id: "behind-proxy", triggers: [{ event: "proxy.job" }] },
    async ({ event, step }) => {
      const { n } = event.data as { n: number };
      const count = async () => void done.set(n, (done.get(n) ?? 0) + 1);
      await step.run("before", count);
      // Most of the jobs wait when a reload comes, and go on behind it.
      await step.sleep("rest", 1_000);
      await step.run("after", count);
    },
  );
  const log = { debug() {}, info() {}, warn() {}, error() {} };
  const worker = createWorker({ url, apiKey: server.adminKey, functions: [work], log });
  try {
    await until(async () => (await fetch(`${url}/ready`).catch(() => undefined))?.status === 200, {
      about: "the proxy",
    });
    await worker.start();
    const client = createClient({ url, apiKey: server.adminKey });
    let reloads = 0;
    for (let n = 0; n < jobsCount; n++) {
      // A caller tries again under the same key until it has an answer.
      const emit = () => client.emit("proxy.job", { n }, { idempotencyKey: `job-${n}` }).catch(() => false);
      await until(emit, { about: `event ${n}`, everyMs: 20 });
      // Each reload falls between two events, and amid the jobs of those before.
      if ((n + 1) % (jobsCount / reloadsCount) !== 0) continue;
      reloads++;
      proxy.signal("SIGUSR2");
      await until(async () => (await workersSeen()) > reloads, { about: `reload ${reloads}`, everyMs: 5 });
    }
    expect(reloads).toBe(reloadsCount);
    const runs = async (status: string) =>
      (await server.rpc("SvcService", "ListRuns", { functionId: "behind-proxy", status, limit: 1_000 })).body
        .runs ?? [];
    await until(async () => (await runs("completed")).length === jobsCount, { about: "their ends" });
    expect([...done.values()].filter((times) => times !== 2)).toEqual([]);
  } finally {
    await worker.stop();
    proxy.signal("SIGTERM");
    await proxy.exited;
    proxy.release();
    await server.stop();
  }
}, 120_000);
