import { resolve } from "node:path";
import { createClient } from "../../src/sdk/index.ts";
import { openProxy } from "../support/proxy.ts";
import type { SpawnedServer } from "../support/server.ts";
import { until } from "../support/until.ts";
import { type Journal, spawnWorker, type WorkerProcess } from "./workers.ts";

const program = resolve(import.meta.dir, "recovery-program.ts");

/** The time that workers of the SDK ask for, unless the server gives less. */
export const leaseMsOf = (configuredMs: number): number => Math.min(10_000, configuredMs);
/** Where there is a sign that a process is gone, the server waits for a renewal for this long. */
export const patienceMsOf = (leaseMs: number): number => leaseMs * 0.3;

export interface SceneOptions {
  server: SpawnedServer;
  journal: Journal;
  leaseMs: number;
}

interface Started {
  transport?: "rest" | "stream";
  jobs?: number;
  port?: number;
}

/** Ways in which workers and servers are lost, each with a function of its own: all but the last may go on side by side. */
export function recoveryScenes({ server, journal, leaseMs }: SceneOptions) {
  const workers: WorkerProcess[] = [];
  const client = () => createClient({ url: server.url, apiKey: server.adminKey });

  async function start(
    name: string,
    functionId: string,
    { transport = "rest", jobs = 4, port }: Started = {},
  ) {
    const url = port === undefined ? server.url : `http://127.0.0.1:${port}`;
    const worker = await spawnWorker(
      name,
      { url, key: server.adminKey },
      { journal, program, words: [functionId, transport, String(jobs)] },
    );
    workers.push(worker);
    return worker;
  }
  const lines = async (words: string) =>
    (await journal.lines()).filter((line) => line.join(" ").startsWith(words)).length;
  const noted = (words: string, count = 1) =>
    until(async () => (await lines(words)) >= count, { about: words, deadlineMs: 60_000, everyMs: 10 });
  const open = (functionId: string) => Bun.write(`${journal.folder}/journal.${functionId}`, "");

  async function begin(functionId: string, data = {}): Promise<string> {
    const { runIds } = await client().emit(`go.${functionId}`, data);
    return runIds[0]!;
  }
  const untilLeased = (runId: string) =>
    until(
      async () => {
        const { body } = await server.rpc("SvcService", "GetRun", { id: runId });
        return (body.run ?? body).status === "RUN_STATUS_RUNNING";
      },
      { about: "the run to be leased" },
    );
  async function completed(runId: string): Promise<unknown> {
    const run = await client().waitForRun(runId, { timeoutMs: 60_000 });
    return run.status === "completed" ? run.output : run;
  }
  const startsOf = async (runIds: readonly string[]) => {
    const found = (await journal.lines()).filter(
      ([, what, runId, step]) => what === "start" && step === "two" && runIds.includes(runId!),
    );
    return found.map(([name]) => name!);
  };

  return {
    /** Milliseconds until another worker goes on. */
    async killed() {
      const first = await start("killed-1", "killed");
      const runId = await begin("killed");
      await noted(`killed-1 start ${runId} two`);
      await start("killed-2", "killed");
      const since = performance.now();
      await first.kill9();
      await noted(`killed-2 start ${runId} two`);
      const ms = performance.now() - since;
      await open("killed");
      const output = await completed(runId);
      const { lines } = await client().getRunLogs(runId);
      const { attemptLog } = await client().getRun(runId, { withAttempts: true });
      return { ms, output, lines: lines.map(({ text, workerId }) => `${workerId} ${text}`), attemptLog };
    },

    /** Milliseconds from when a worker of the same name is ready. */
    async succeeded() {
      const first = await start("same", "succeeded");
      const runId = await begin("succeeded");
      await noted(`same start ${runId} two`);
      await first.kill9();
      const ready = noted("same ready", 2).then(() => performance.now());
      await start("same", "succeeded");
      const since = await ready;
      await noted(`same start ${runId} two`, 2);
      const ms = performance.now() - since;
      await open("succeeded");
      return { ms, output: await completed(runId) };
    },

    /** A second process of the name begins while the first one goes on. */
    async beside() {
      await start("twin", "beside");
      const runId = await begin("beside");
      await noted(`twin start ${runId} two`);
      await start("twin", "beside");
      await Bun.sleep(patienceMsOf(leaseMs) + 1_500);
      const starts = await startsOf([runId]);
      await open("beside");
      return { starts, output: await completed(runId) };
    },

    /** Milliseconds until another worker goes on; then the first one is thawed, and refused. */
    async frozen() {
      const first = await start("frozen-1", "frozen");
      const runId = await begin("frozen");
      await noted(`frozen-1 start ${runId} two`);
      await start("frozen-2", "frozen");
      const since = performance.now();
      first.freeze();
      await noted(`frozen-2 start ${runId} two`);
      const ms = performance.now() - since;
      await Bun.sleep(Math.max(0, leaseMs - ms));
      first.thaw();
      await open("frozen");
      await noted("frozen-1 warn STALE_EXECUTION");
      return { ms, starts: await startsOf([runId]), output: await completed(runId) };
    },

    /** Milliseconds until another worker goes on with what a worker on a stream had begun. */
    async streamKilled() {
      const first = await start("dead-stream-1", "dead-stream", { transport: "stream" });
      const runId = await begin("dead-stream");
      await noted(`dead-stream-1 start ${runId} two`);
      await start("dead-stream-2", "dead-stream", { transport: "stream" });
      const since = performance.now();
      await first.kill9();
      await noted(`dead-stream-2 start ${runId} two`);
      const ms = performance.now() - since;
      await open("dead-stream");
      return { ms, output: await completed(runId) };
    },

    /**
     * The stream is cut; its worker opens another one and keeps its run, although another worker waits. Milliseconds until
     * the worker has done a job that came by the other stream.
     */
    async streamCut() {
      const proxy = await openProxy(() => Number(new URL(server.url).port));
      const { port } = proxy;
      await start("cut-1", "cut", { transport: "stream", port });
      const runId = await begin("cut");
      await noted(`cut-1 start ${runId} two`);
      await start("cut-2", "cut", { transport: "stream" });
      const since = performance.now();
      proxy.cut();
      const isBack = begin("cut-cut-1").then(completed);
      await noted("cut-1 warn the stream has ended");
      await isBack;
      const ms = performance.now() - since;
      await Bun.sleep(patienceMsOf(leaseMs) + 1_500);
      const starts = await startsOf([runId]);
      await open("cut");
      const output = await completed(runId);
      await proxy.stop();
      return { ms, starts, output };
    },

    /** The stream is cut and none comes in its place. Milliseconds until another worker goes on with a run that had begun. */
    async streamGone() {
      const proxy = await openProxy(() => Number(new URL(server.url).port));
      const { port } = proxy;
      await start("gone-1", "gone", { transport: "stream", port });
      const runId = await begin("gone");
      await noted(`gone-1 start ${runId} two`);
      await start("gone-2", "gone", { transport: "stream" });
      proxy.closed = true;
      const since = performance.now();
      proxy.cut();
      await noted(`gone-2 start ${runId} two`);
      const ms = performance.now() - since;
      await open("gone");
      const output = await completed(runId);
      await proxy.stop();
      return { ms, output };
    },

    /** The stream is cut before its worker has heard of a run. Milliseconds until another worker begins it. */
    async streamUnheard() {
      const proxy = await openProxy(() => Number(new URL(server.url).port));
      const { port } = proxy;
      await start("unheard-1", "unheard", { transport: "stream", port });
      proxy.deaf.down = true;
      const runId = await begin("unheard");
      await untilLeased(runId);
      await start("unheard-2", "unheard", { transport: "stream" });
      const before = await startsOf([runId]);
      proxy.closed = true;
      const since = performance.now();
      proxy.cut();
      await noted(`unheard-2 start ${runId} two`);
      const ms = performance.now() - since;
      await open("unheard");
      const output = await completed(runId);
      await proxy.stop();
      return { ms, before, output };
    },

    /** A handler holds up its thread for longer than a lease lasts. */
    async blocked() {
      await start("blocked-1", "blocked");
      const runId = await begin("blocked", { blockMs: 1.5 * leaseMs });
      await noted("blocked-1 start");
      await start("blocked-2", "blocked");
      const output = await completed(runId);
      return { starts: await startsOf([runId]), output };
    },

    /**
     * 64 runs were leased and lost on the way to their workers, which hold 8 others, when the server is killed; it is back
     * half a second later. Milliseconds from when it listens until the last of the 64 has begun.
     */
    async serverKilled() {
      const proxy = await openProxy(() => Number(new URL(server.url).port));
      const { port } = proxy;
      await start("keeper", "kept", { jobs: 8, port });
      const emit = async (functionId: string, count: number) => {
        const events = Array.from({ length: count }, () => ({ event: `go.${functionId}`, data: {} }));
        return (await client().emitMany(events)).flatMap(({ runIds }) => runIds);
      };
      const kept = await emit("kept", 8);
      await until(async () => (await startsOf(kept)).length === 8, { about: "8 runs to begin" });
      await Promise.all([1, 2, 3, 4].map((at) => start(`loser-${at}`, "lost", { jobs: 16, port })));
      proxy.deaf.down = true;
      const lost = await emit("lost", 64);
      await until(
        async () => {
          const { body } = await server.rpc("SvcService", "ListRuns", { statuses: ["running"], limit: 100 });
          return Number(body.totalCount) === 72;
        },
        { about: "64 runs to be leased" },
      );
      await server.kill9();
      proxy.deaf.down = false;
      proxy.cut();
      await Bun.sleep(500);
      await server.restart();
      const since = performance.now();
      await until(async () => new Set(await runsBegun(lost)).size === 64, {
        ...{ about: "the 64 runs to begin", deadlineMs: 60_000, everyMs: 20 },
      });
      const ms = performance.now() - since;
      const again = { lost: (await startsOf(lost)).length, kept: (await startsOf(kept)).length };
      await Promise.all([open("kept"), open("lost")]);
      const outputs = await Promise.all([...kept, ...lost].map(completed));
      await proxy.stop();
      return { ms, again, completed: outputs.filter((output) => typeof output === "string").length };
    },

    async stop() {
      await Promise.all(workers.map((worker) => worker.kill9()));
    },
  };

  async function runsBegun(runIds: readonly string[]): Promise<string[]> {
    const found = (await journal.lines()).filter(([, what, , step]) => what === "start" && step === "two");
    return found.flatMap(([, , runId]) => (runIds.includes(runId!) ? runId! : []));
  }
}
