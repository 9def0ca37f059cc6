import { readdirSync, readFileSync } from "node:fs";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Subprocess } from "bun";
import { freePort } from "../support/process.ts";
import { until } from "../support/until.ts";

const here = import.meta.dir;
const ticksPerSecond = 100;

/** CPU seconds of a process so far, its ended children included. */
function cpuOf(pid: number): number {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ")[1]!.split(" ");
    return [11, 12, 13, 14].reduce((sum, at) => sum + Number(fields[at]), 0) / ticksPerSecond;
  } catch {
    return 0;
  }
}

function childrenOf(pid: number): number[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .filter((name) => {
      try {
        return Number(readFileSync(`/proc/${name}/stat`, "utf8").split(") ")[1]!.split(" ")[1]) === pid;
      } catch {
        return false;
      }
    })
    .map(Number);
}

/** Of PostgreSQL with all its backends. */
export const treeCpu = (pid: number | undefined): number =>
  pid === undefined ? 0 : [pid, ...childrenOf(pid)].reduce((sum, one) => sum + cpuOf(one), 0);

const running = new Set<Subprocess>();

export async function stopAll(): Promise<void> {
  for (const one of running) one.kill("SIGKILL");
  await Promise.all([...running].map((one) => one.exited));
}

interface Program {
  pid: number;
  cpu(): number;
  /** Sends SIGUSR2 and answers the JSON of the next line. */
  tell(): Promise<Record<string, number>>;
  stop(): Promise<void>;
}

function start(argv: string[], stream: "stdout" | "stderr", env: Record<string, string> = {}) {
  const child = Bun.spawn(argv, {
    stdin: "ignore",
    stdout: stream === "stdout" ? "pipe" : "ignore",
    stderr: stream === "stderr" ? "pipe" : "inherit",
    env: { ...process.env, ...env },
  });
  running.add(child);
  const lines: string[] = [];
  void (async () => {
    let rest = "";
    for await (const bytes of child[stream] as ReadableStream<Uint8Array>) {
      const parts = (rest + new TextDecoder().decode(bytes)).split("\n");
      rest = parts.pop() ?? "";
      lines.push(...parts);
    }
  })();
  const program: Program = {
    pid: child.pid,
    cpu: () => cpuOf(child.pid),
    async tell() {
      const from = lines.length;
      child.kill("SIGUSR2");
      const find = () => lines.slice(from).find((line) => /^(lag )?\{/.test(line));
      await until(() => find() !== undefined, {
        deadlineMs: 5_000,
        everyMs: 5,
        about: "the program's answer",
      });
      return JSON.parse(find()!.replace(/^lag /, ""));
    },
    async stop() {
      child.kill("SIGTERM");
      await child.exited;
      running.delete(child);
    },
  };
  return { child, lines, program };
}

/** Runs a program of this folder to its end; answers the JSON it printed. */
export async function runToEnd(script: string, options: object): Promise<Record<string, number>> {
  const { child, lines } = start(
    [process.execPath, "run", join(here, script), JSON.stringify(options)],
    "stdout",
  );
  await child.exited;
  running.delete(child);
  const answer = lines.findLast((line) => line.startsWith("{"));
  if (answer === undefined) throw new Error(`${script} printed nothing`);
  return JSON.parse(answer);
}

export interface Bench {
  url: string;
  key: string;
  server: Program;
  worker: Program;
  stop(): Promise<void>;
}

/** A server as a user starts it, and a worker, each a process of its own. */
export async function startBench(databaseUrl: string | undefined): Promise<Bench> {
  const folder = await mkdtemp(join(tmpdir(), "svc-bench-"));
  const port = await freePort();
  const keyFile = join(folder, "key.json");
  const place =
    databaseUrl === undefined ? ["--db", join(folder, "svc.db")] : ["--database-url", databaseUrl];
  const main = join(here, "../../src/main.ts");
  const { program: server } = start(
    [process.execPath, "run", `--preload=${join(here, "lag-preload.ts")}`, main, "serve"].concat(
      ["--port", `${port}`, "--bootstrap-key-file", keyFile],
      place,
    ),
    "stderr",
    { LOG_LEVEL: "warn" },
  );
  const url = `http://127.0.0.1:${port}`;
  const answers = () =>
    fetch(`${url}/health`).then(
      (response) => response.ok,
      () => false,
    );
  await until(answers, { deadlineMs: 20_000, everyMs: 50, about: "the server" });
  const { key } = JSON.parse(await readFile(keyFile, "utf8")) as { key: string };
  const options = JSON.stringify({ url, key });
  const { program: worker, lines } = start(
    [process.execPath, "run", join(here, "worker.ts"), options],
    "stdout",
  );
  await until(() => lines.includes("ready"), { deadlineMs: 20_000, everyMs: 50, about: "the worker" });
  return {
    url,
    key,
    server,
    worker,
    async stop() {
      await worker.stop();
      await server.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}
