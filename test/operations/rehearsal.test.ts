import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Client, createClient, createFunction, createWorker, type Worker } from "../../src/sdk/index.ts";
import { type Cli, makeCli } from "../support/cli.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { until } from "../support/until.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };
const sdk = join(import.meta.dir, "../../src/sdk/index.ts");

describe.each(engines)("rehearsals on %s", (engine) => {
  let server: TestServer;
  let client: Client;
  let cli: Cli;
  let worker: Worker;
  const folder = mkdtempSync(join(tmpdir(), "svc-rehearsal-"));
  let completed = "";
  let waiting = "";
  let failed = "";
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 1_000 } });
    client = createClient({ url: server.url, apiKey: server.adminKey });
    cli = makeCli({ SVC_SERVER_URL: server.url, SVC_API_KEY: server.adminKey });
    worker = createWorker({
      ...{ client, handleSignals: false, log: silent, checkpoint: 0 },
      functions: [
        createFunction(
          { id: "ship", event: "order.placed", retry: { maxAttempts: 1 } },
          async ({ event, step }) => {
            const { total, waits, fails } = event.data as { total: number; waits?: true; fails?: true };
            const paid = await step.run("charge", () => ({ paid: total, card: "4242-secret" }));
            if (waits) await step.waitForSignal("go");
            await step.sleep("pause", 1);
            await step.run("pack", () => {
              if (fails) throw Object.assign(new Error("no box"), { retryable: false });
            });
            return { total: paid.paid };
          },
        ),
      ],
    });
    await worker.start();
    const begin = async (data: object) => (await client.emit("order.placed", data)).runIds[0]!;
    completed = await begin({ total: 7 });
    await client.waitForRun(completed);
    failed = await begin({ total: 8, fails: true });
    await client.waitForRun(failed);
    waiting = await begin({ total: 9, waits: true });
    const waits = async () => (await client.getRun(waiting)).pauseReason === "wait_event";
    await until(waits, { about: "the run to wait" });
  }, 60_000);
  afterAll(async () => {
    worker?.stop();
    cli?.remove();
    await server?.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  /** Of the three runs, in the order completed, failed, waiting. */
  async function rehearse(handler: string, ...words: string[]) {
    const file = join(folder, `worker-${Bun.hash(handler)}.ts`);
    writeFileSync(
      file,
      `import { createClient, createFunction, createWorker } from ${JSON.stringify(sdk)};
      console.log("a program may print");
      const worker = createWorker({ functions: [createFunction({ id: "ship", event: "order.placed", secrets: ["TOKEN"] }, ${handler})] });
      await worker.start();`,
    );
    const { code, out, err } = await cli.run(["rehearse", "--worker", file, "--json", ...words]);
    const { runs, differing } = JSON.parse(out || "{}");
    const of = (runId: string) => runs?.find((one: { runId: string }) => one.runId === runId)?.differences;
    expect(out).not.toContain("secret");
    return { code, err, differing, all: [completed, failed, waiting].map(of) };
  }
  const body = (steps: string) => `async ({ event, step, secrets }) => { ${steps} }`;
  const charge = `const paid = await step.run("charge", () => { throw new Error("executed"); });`;
  const wait = `if (event.data.waits) await step.waitForSignal("go");`;
  const rest = `await step.sleep("pause", 1); await step.run("pack", () => { throw new Error("executed"); });`;

  test("the same code goes the same way, and executes no step", async () => {
    const found = await rehearse(body(`${charge} ${wait} ${rest} return { total: paid.paid };`));
    expect(found).toMatchObject({ code: 0, differing: 0, all: [[], [], []] });
  });

  test("a renamed step, another order, a step that is gone, another wait, output and failure are told", async () => {
    const renamed = body(`${charge.replace("charge", "bill")} ${wait} ${rest} return { total: paid.paid };`);
    expect(await rehearse(renamed)).toMatchObject({ code: 1, differing: 3 });
    expect((await rehearse(renamed)).all[0]).toEqual([
      "new step bill: not played on from there",
      "does not come to step charge, pause, pack",
    ]);
    const order = body(`await step.run("pack", () => 1); ${charge} await step.sleep("pause", 1);
      return { total: paid.paid };`);
    expect((await rehearse(order)).all[0]).toEqual([
      expect.stringMatching(/^comes to step .* in another order$/),
    ]);
    const fewer = body(`${charge} ${wait} await step.sleep("pause", 1); return { total: paid.paid };`);
    expect((await rehearse(fewer)).all).toEqual([
      ["does not come to step pack"],
      ["does not come to step pack", "completes, and had failed"],
      [],
    ]);
    const waits = body(`${charge} await step.waitForSignal("other"); ${rest} return { total: paid.paid };`);
    expect((await rehearse(waits)).all[2]).toEqual([expect.stringMatching(/^waits at .* and not at .*$/)]);
    const output = body(`${charge} ${wait} ${rest} return { total: paid.paid + 1 };`);
    expect((await rehearse(output)).all).toEqual([["gives another output.total"], [], []]);
    const fails = body(`${charge} ${wait} ${rest} throw new Error("new " + secrets.TOKEN);`);
    expect((await rehearse(fails)).all[0]).toEqual(["fails: new rehearsal"]);
  });

  test("code that never returns is cut, also where nothing else can run, and the next run is played", async () => {
    for (const never of ["for (;;) {}", "await new Promise(() => {});"]) {
      const found = await rehearse(
        body(
          `${charge} if (event.data.total === 7) { ${never} } ${wait} ${rest} return { total: paid.paid };`,
        ),
        ...["--timeout", "500ms"],
      );
      expect(found).toMatchObject({ code: 1, differing: 1 });
      expect(found.all).toEqual([["does not return within 500 ms"], [], []]);
    }
  });

  test("no call leaves it, and what is wrong with the program is told", async () => {
    const calls = body(`${charge} await createClient().emit("order.placed", {}); return 1;`);
    expect((await rehearse(calls, "--last", "3")).all[0]).toContain("fails: a rehearsal calls no server");
    const { runs } = await client.listRuns({ functionId: "ship" });
    expect(runs).toHaveLength(3);
    const file = join(folder, "broken.ts");
    writeFileSync(file, `throw new Error("broken at its begin");`);
    const broken = await cli.run(["rehearse", "--worker", file]);
    expect(broken).toMatchObject({ code: 1, out: "" });
    expect(broken.err).toContain("the worker's program ended with 1");
    const same = body(`${charge} ${wait} ${rest} return { total: paid.paid };`);
    expect(await rehearse(same, "--function", "other")).toMatchObject({ code: 2 });
    for (const wrong of [
      ["--last", "0"],
      ["--timeout", "soon"],
    ])
      expect(await rehearse(same, ...wrong)).toMatchObject({ code: 2 });
    expect((await cli.run(["rehearse", "--worker", join(folder, "none.ts")])).code).toBe(2);
  });
});
