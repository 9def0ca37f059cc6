import { readdirSync, readFileSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { Subprocess } from "bun";
import { kept } from "../../src/cli/kept-memory.ts";
import { nodeProgram } from "../support/node-versions.ts";
import { freePort } from "../support/process.ts";
import { until } from "../support/until.ts";

const here = import.meta.dir;
const ticksPerSecond = 100;

const statOf = (pid: number | string): string[] | undefined => {
  try {
    return readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1)!.split(" ");
  } catch {
    // It ended between the look at /proc and this one.
    return undefined;
  }
};

/** CPU seconds of a process so far, its ended children included. */
function cpuOf(pid: number): number {
  const fields = statOf(pid) ?? [];
  return [11, 12, 13, 14].reduce((sum, at) => sum + Number(fields[at] ?? 0), 0) / ticksPerSecond;
}

const childrenOf = (pid: number): number[] =>
  readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name) && Number(statOf(name)?.[1]) === pid)
    .map(Number);

/** Of PostgreSQL with all its backends. */
export const treeCpu = (pid: number | undefined): number =>
  pid === undefined ? 0 : [pid, ...childrenOf(pid)].reduce((sum, one) => sum + cpuOf(one), 0);

/** CPU seconds that the whole machine has spent: what is not ours in it disturbed the measurement. */
export function machineCpu(): number {
  const [user, nice, system, , , irq, softirq] = readFileSync("/proc/stat", "utf8")
    .split("\n")[0]!
    .trim()
    .split(/\s+/)
    .slice(1)
    .map(Number);
  return (user! + nice! + system! + irq! + softirq!) / ticksPerSecond;
}

const running = new Set<Subprocess>();
const endsWithParent = `--preload=${join(here, "ends-with-parent.ts")}`;
const profiled = (folder: string) => [
  ...[process.execPath, "--cpu-prof", `--cpu-prof-dir=${folder}`, endsWithParent],
];

export async function stopAll(): Promise<void> {
  for (const one of running) one.kill("SIGKILL");
  await Promise.all([...running].map((one) => one.exited));
}

export interface Program {
  pid: number;
  cpu(): number;
  /** Sends SIGUSR2 and answers the JSON of the next line. */
  tell<Answer>(): Promise<Answer>;
  stop(): Promise<void>;
}

function start(
  script: string[],
  stream: "stdout" | "stderr",
  env: Record<string, string> = {},
  runtime = [process.execPath, "run", endsWithParent],
) {
  const child = Bun.spawn([...runtime, ...script], {
    // Never written to: it ends with this process.
    stdin: "pipe",
    stdout: stream === "stdout" ? "pipe" : "ignore",
    stderr: stream === "stderr" ? "pipe" : "inherit",
    env: { ...process.env, ...env },
  });
  running.add(child);
  void child.exited.then(() => running.delete(child));
  const lines: string[] = [];
  const ended = (async () => {
    const decoder = new TextDecoder();
    let rest = "";
    for await (const bytes of child[stream] as ReadableStream<Uint8Array>) {
      const parts = (rest + decoder.decode(bytes, { stream: true })).split("\n");
      rest = parts.pop() ?? "";
      lines.push(...parts);
    }
  })();
  const program: Program = {
    pid: child.pid,
    cpu: () => cpuOf(child.pid),
    async tell<Answer>() {
      const from = lines.length;
      child.kill("SIGUSR2");
      const find = () => lines.slice(from).find((line) => /^(lag )?\{/.test(line));
      const line = await until(() => find() ?? (child.exitCode === null ? undefined : "gone"), {
        deadlineMs: 5_000,
        everyMs: 5,
        about: "the program's answer",
      });
      if (line === "gone")
        throw new Error(
          `${script.at(-1)} ended with ${child.signalCode ?? child.exitCode}:\n${lines.slice(-20).join("\n")}`,
        );
      return JSON.parse(line.replace(/^lag /, "")) as Answer;
    },
    async stop() {
      child.kill("SIGTERM");
      await child.exited;
    },
  };
  return { child, lines, program, ended };
}

/** Runs a program of this folder to its end; answers the JSON it printed. */
export async function runToEnd(
  script: string,
  options: object,
  runtime?: string[],
): Promise<Record<string, number>> {
  const given = [resolve(here, script), JSON.stringify(options)];
  const { child, lines, ended } = start(given, "stdout", {}, ...(runtime ? [runtime] : []));
  await Promise.all([child.exited, ended]);
  const answer = lines.findLast((line) => line.startsWith("{"));
  if (answer === undefined) throw new Error(`${script} printed nothing`);
  return JSON.parse(answer);
}

/** Starts a program, by its path from this folder, and waits for a line that begins like this; it ends with the bench. */
export async function startProgram(
  script: string,
  options: object,
  { first, runtime }: { first: string; runtime?: string[] },
): Promise<Program & { line: string }> {
  const { child, lines, program } = start(
    [resolve(here, script), JSON.stringify(options)],
    "stdout",
    {},
    ...(runtime ? [runtime] : []),
  );
  const said = () =>
    lines.find((line) => line.startsWith(first)) ?? (child.exitCode === null ? undefined : "");
  const line = await until(said, { deadlineMs: 60_000, everyMs: 10, about: `${script} to be ready` });
  if (line === "") throw new Error(`${script} ended`);
  return { ...program, line };
}

export interface Bench {
  url: string;
  key: string;
  keyFile: string;
  /** The URL of its database, or the file of libSQL. */
  store: string;
  server: Program;
  worker: Program;
  stop(): Promise<void>;
}

export interface BenchOptions {
  /** Of nodes besides, and of later starts on the same store: the first one writes it. */
  keyFile?: string;
  natsUrl?: string;
  /** No worker of its own, and nobody asks how late its event loop is, which costs it 200 wakes a second. */
  alone?: boolean;
  /** The program of this folder that works, on Bun, instead of `worker.ts`. */
  worker?: string;
  /** The server samples its own calls and leaves its profile in this folder. */
  profile?: string;
  /** Of `worker.ts`; Bun unless it says so. */
  how?: Omit<WorkerHow, "strict">;
  /** Of libSQL, instead of a new one. */
  file?: string;
  /** Settings of the server. */
  env?: Record<string, string>;
}

/** A server as a user starts it, and a worker, each a process of its own. */
export async function startBench(
  databaseUrl: string | undefined,
  options: BenchOptions = {},
): Promise<Bench> {
  const folder = await mkdtemp(join(tmpdir(), "svc-bench-"));
  const port = await freePort();
  const keyFile = options.keyFile ?? join(folder, "key.json");
  const store = databaseUrl ?? options.file ?? join(folder, "svc.db");
  const place = [databaseUrl === undefined ? "--db" : "--database-url", store];
  const { program: server, lines: said } = start(
    [
      ...(options.alone ? [] : [`--preload=${join(here, "lag-preload.ts")}`]),
      ...[join(here, "../../src/main.ts"), "serve", "--port", `${port}`, "--grpc-port", "0"],
      ...["--bootstrap-key-file", keyFile, ...place],
      ...(options.natsUrl ? ["--nats-url", options.natsUrl] : []),
    ],
    "stderr",
    {
      ...{ LOG_LEVEL: "warn", SVC_MASTER_KEY: "5e".repeat(32), SVC_WEBHOOK_RATE_LIMIT: "0" },
      // Bun would lose its profile at the server's second start.
      ...(options.profile !== undefined && kept),
      ...options.env,
    },
    options.profile === undefined ? undefined : profiled(options.profile),
  );
  const stops = [server.stop, () => rm(folder, { recursive: true, force: true })];
  const stop = async () => {
    for (const one of stops) await one();
  };
  try {
    const url = `http://127.0.0.1:${port}`;
    const answers = async () => (await fetch(`${url}/health`)).ok;
    await until(answers, { deadlineMs: 20_000, everyMs: 50, about: "the server" }).catch((error) => {
      throw new Error(`the server does not start:\n${said.join("\n")}`, { cause: error });
    });
    const { key } = JSON.parse(await readFile(keyFile, "utf8")) as { key: string };
    if (options.alone) return { url, key, keyFile, store, server, worker: server, stop };
    const worker =
      options.worker === undefined
        ? await startWorker({ url, key }, options.how ?? {})
        : await startProgram(options.worker, { url, key }, { first: "ready" });
    stops.unshift(worker.stop);
    return { url, key, keyFile, store, server, worker, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

export type Runtime = "bun" | "node";

export interface WorkerHow {
  runtime?: Runtime;
  /** Runs that it works on at once. */
  jobs?: number;
  /** Of a function of its own, whose steps are stored one after the other. */
  strict?: boolean;
}

/** Node is of the newest line that the SDK promises to run on, and gets the worker as one built file. */
export async function startWorker(
  { url, key }: Pick<Bench, "url" | "key">,
  { runtime = "bun", ...how }: WorkerHow,
): Promise<Program> {
  const options = { url, key, ...how };
  if (runtime === "bun") return startProgram("worker.ts", options, { first: "ready" });
  return onNode("worker.ts", (file, runtime) => startProgram(file, options, { first: "ready", runtime }));
}

async function onNode<Value>(
  script: string,
  work: (file: string, runtime: string[]) => Promise<Value>,
): Promise<Value> {
  const folder = await mkdtemp(join(tmpdir(), "svc-bench-node-"));
  try {
    const built = await Bun.build({ entrypoints: [join(here, script)], target: "node", outdir: folder });
    if (!built.success) throw new AggregateError(built.logs, `${script} cannot be built for Node`);
    return await work(built.outputs[0]!.path, [await nodeProgram(24)]);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** `runToEnd` on Node. */
export const runOnNode = (script: string, options: object) =>
  onNode(script, (file, runtime) => runToEnd(file, options, runtime));
