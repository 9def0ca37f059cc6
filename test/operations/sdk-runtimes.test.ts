import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { inChrome } from "../support/chrome.ts";
import { findProgram, removeFolder } from "../support/process.ts";
import { startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

/**
 * The same everywhere: reads three events, of which one is replayed, and says what it got and how; appends to a stream, and
 * reads it.
 */
const program = (library: string) => `
import { createClient } from ${JSON.stringify(library)};
globalThis.follow = async (options, over, say) => {
  const client = createClient(options);
  const orders = client.subscribe("order.*", { replay: 1, over });
  await orders.ready;
  say("ready");
  const got = [];
  for await (const { topic, data } of orders) {
    got.push([topic, data.n]);
    if (data.n === 3) break;
  }
  await client.streams.append({ entityId: "walk", entityType: "walk", event: "walk.went", data: { over } });
  const versions = [];
  for await (const { version } of client.streams.read("walk")) versions.push(version);
  // Each runtime has a bucket of its own, so that none finds what another put.
  const bucket = "walk-" + over + "-" + typeof document + "-" + typeof WebSocket;
  await client.kv.createBucket(bucket);
  await client.kv.put(bucket, "a/b", { over });
  const watch = client.kv.watch(bucket)[Symbol.asyncIterator]();
  const told = [(await watch.next()).value];
  await client.kv.delete(bucket, "a/b");
  told.push((await watch.next()).value);
  await watch.return();
  const isTold = told[0].json().over === over && told[1].operation === "delete";
  // A page of another origin is told the sequence, and may send it.
  const runs = await client.consistent().listRuns();
  const isConsistent = client.sequence() !== undefined && runs.totalCount === 0;
  const isWhole = isTold && isConsistent && versions.length > 0 && versions.every((version, at) => version === at + 1);
  return { got, sockets: typeof WebSocket, place: orders.place, isWhole };
};
`;

describe("the client, built, on other runtimes", () => {
  let server: TestServer;
  let folder: string;
  beforeAll(async () => {
    server = await startTestServer({ engine: "libsql" });
    folder = await mkdtemp(join(tmpdir(), "svc-runtimes-"));
  }, 120_000);
  afterAll(async () => {
    await server.stop();
    await removeFolder(folder);
  });

  const emit = async (n: number) => {
    const answer = await server.rpc("SvcService", "Emit", { event: `order.e${n}`, data: { n } });
    expect(answer.status).toBe(200);
  };
  const wanted = [
    ["events:order.e1", 1],
    ["events:order.e2", 2],
    ["events:order.e3", 3],
  ];

  async function build(entry: string, target: "node" | "browser"): Promise<string> {
    const built = await Bun.build({
      entrypoints: [resolve(import.meta.dir, "../../src/sdk", entry)],
      target,
    });
    const text = await built.outputs[0]!.text();
    expect(text).not.toMatch(/\bBun\.|\brequire\(/);
    return text;
  }

  test.each([
    ["connect", []],
    ["websocket", ["--experimental-websocket"]],
    ["auto", []],
  ] as const)(
    "Node over %s",
    async (over, flags) => {
      await Bun.write(join(folder, "index.mjs"), await build("index.ts", "node"));
      const options = { url: server.url, apiKey: server.adminKey };
      await Bun.write(
        join(folder, "program.mjs"),
        `${program("./index.mjs")}
       const say = (text) => console.log(text);
       console.log(JSON.stringify(await follow(${JSON.stringify(options)}, ${JSON.stringify(over)}, say)));`,
      );
      await emit(1);
      const node = findProgram(["node"], "nodejs");
      const child = Bun.spawn([node, ...flags, join(folder, "program.mjs")], {
        env: { PATH: process.env.PATH },
        stdout: "pipe",
        stderr: "inherit",
      });
      let said = "";
      const reading = (async () => {
        const decoder = new TextDecoder();
        for await (const bytes of child.stdout) said += decoder.decode(bytes, { stream: true });
      })();
      try {
        await until(() => said.includes("ready"), { about: "the subscription", deadlineMs: 30_000 });
        await emit(2);
        await emit(3);
        expect(await child.exited).toBe(0);
        await reading;
        const { got, isWhole } = JSON.parse(said.trim().split("\n").at(-1)!);
        expect({ got, isWhole }).toEqual({ got: wanted, isWhole: true });
      } finally {
        child.kill("SIGKILL");
        await child.exited;
      }
    },
    60_000,
  );

  test("Node folds a projection", async () => {
    await Bun.write(join(folder, "index.mjs"), await build("index.ts", "node"));
    await Bun.write(
      join(folder, "fold.mjs"),
      `import { createClient, createProjection, createWorker } from "./index.mjs";
       const options = ${JSON.stringify({ url: server.url, apiKey: server.adminKey })};
       const sums = createProjection({
         name: "node_sums",
         events: ["node.counted"],
         partitionKey: "$.data.of",
         initialState: 0,
         reduce: (state, { data }) => state + data.n,
       });
       const client = createClient(options);
       const emit = (of, n) => client.emit("node.counted", { of, n });
       await emit("a", 1);
       const worker = createWorker({ ...options, projections: [sums] });
       await worker.start();
       await emit("b", 2);
       const { sequence } = await emit("a", 3);
       await client.projections.wait(sums, sequence);
       await worker.drain();
       const stateOf = async (partition) => (await client.projections.get(sums, { partition })).state;
       console.log(JSON.stringify([await stateOf("a"), await stateOf("b")]));`,
    );
    const child = Bun.spawn([findProgram(["node"], "nodejs"), join(folder, "fold.mjs")], {
      env: { PATH: process.env.PATH },
      stdout: "pipe",
      stderr: "inherit",
    });
    try {
      const said = await new Response(child.stdout).text();
      expect(await child.exited).toBe(0);
      expect(JSON.parse(said)).toEqual([4, 2]);
    } finally {
      child.kill("SIGKILL");
      await child.exited;
    }
  }, 120_000);

  test("a browser, over both", async () => {
    const library = await build("browser.ts", "browser");
    expect(library).not.toContain("node:");
    await Bun.write(join(folder, "library.js"), library);
    await Bun.write(join(folder, "page.js"), program("./library.js"));
    const built = await Bun.build({
      entrypoints: [join(folder, "page.js")],
      target: "browser",
      format: "iife",
    });
    const script = await built.outputs[0]!.text();
    await inChrome(async (chrome) => {
      const page = await chrome.newPage();
      // Of another origin than the calls of the page.
      await page.goto(`${server.url.replace("127.0.0.1", "localhost")}/health`);
      await page.evaluate(script);
      for (const over of ["websocket", "connect"]) {
        await emit(1);
        const options = { url: server.url, apiKey: server.adminKey };
        const following = page.evaluate(
          `(globalThis.said = undefined, follow(${JSON.stringify(options)}, "${over}", (text) => { globalThis.said = text; }))`,
        );
        await page.waitForFunction("globalThis.said === 'ready'");
        await emit(2);
        await emit(3);
        expect(await following).toMatchObject({ got: wanted, isWhole: true });
      }
    });
  }, 400_000);
});
