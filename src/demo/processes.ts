import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, openSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";

const sources = join(import.meta.dirname, "..");
const startMsMax = 20_000;

export interface Server {
  url: string;
  apiKey: string | undefined;
  /** Undefined for a server that was there before the demo. */
  own?: {
    kill(): Promise<void>;
    start(): Promise<void>;
    stop(): Promise<void>;
    leave(): void;
    keyFile: string;
    pid(): number;
  };
}

export interface WorkerProcess {
  pid: number;
  kill(signal: "SIGKILL" | "SIGTERM"): Promise<void>;
}

const pause = (ms: number) => new Promise<void>((done) => setTimeout(done, ms));

/** Polls until `condition` gives something. Throws after `msMax`. */
export async function until<Value>(
  about: string,
  condition: () => Promise<Value | undefined> | Value | undefined,
  { msMax, everyMs = 25 }: { msMax: number; everyMs?: number },
): Promise<Value> {
  const deadline = Date.now() + msMax;
  for (;;) {
    const value = await condition();
    if (value !== undefined) return value;
    if (Date.now() > deadline) throw new Error(`gave up waiting for ${about} after ${msMax / 1_000} s`);
    await pause(everyMs);
  }
}

const isFree = (port: number): Promise<boolean> =>
  new Promise((done) => {
    const probe = createServer().once("error", () => done(false));
    probe.listen(port, "127.0.0.1", () => probe.close(() => done(true)));
  });

/** One that Linux gives to no outgoing connection: no other program gets it while the server is away. */
async function freePort(): Promise<number> {
  for (let tries = 0; tries < 100; tries++) {
    const port = 12_000 + Math.floor(Math.random() * 20_000);
    if (await isFree(port)) return port;
  }
  throw new Error("no port from 12000 to 31999 is free");
}

/** This process's variables without any of svc's: the demo's processes get exactly theirs. */
function cleanEnvironment(): Record<string, string> {
  const entries = Object.entries(process.env).filter(([name]) => !/^(SVC_|NATS_|LOG_)/.test(name));
  return Object.fromEntries(entries) as Record<string, string>;
}

const ended = (child: ChildProcess) => child.exitCode !== null || child.signalCode !== null;

async function kill(child: ChildProcess, signal: "SIGKILL" | "SIGTERM"): Promise<void> {
  if (ended(child)) return;
  const gone = new Promise<void>((done) => child.once("exit", () => done()));
  child.kill(signal);
  await gone;
}

/** A standalone server in `folder`, on a free port that it keeps over a restart. */
export async function startServer(folder: string, settings: Record<string, string>): Promise<Server> {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const keyFile = join(folder, "key.json");
  const logFile = join(folder, "server.log");
  let child: ChildProcess;

  async function start(): Promise<void> {
    const log = openSync(logFile, "a");
    child = spawn(process.execPath, ["run", join(sources, "main.ts"), "serve"], {
      cwd: folder,
      // Its own group: an interrupt at the terminal reaches the demo, which ends it in order.
      detached: true,
      stdio: ["ignore", log, log],
      env: {
        ...cleanEnvironment(),
        SVC_PORT: String(port),
        SVC_GRPC_PORT: "0",
        SVC_DB: join(folder, "svc.db"),
        SVC_BOOTSTRAP_KEY_FILE: keyFile,
        LOG_FORMAT: "json",
        ...settings,
      },
    });
    await until(
      "the server to start",
      async () => {
        if (ended(child))
          throw new Error(`the server does not start:\n${readFileSync(logFile, "utf8").slice(-2_000)}`);
        // It listens only once it is ready; what it answers to a stranger is of no matter here.
        const answer = await fetch(url).catch(() => undefined);
        return answer !== undefined && existsSync(keyFile) ? true : undefined;
      },
      { msMax: startMsMax },
    );
  }

  // However the demo ends, if it is not to stay: an interrupt while it starts, a start that takes too long.
  const end = () => void child?.kill("SIGKILL");
  process.once("exit", end);
  await start();
  const { key } = JSON.parse(readFileSync(keyFile, "utf8")) as { key: string };
  return {
    url,
    apiKey: key,
    own: {
      start,
      keyFile,
      pid: () => child.pid ?? 0,
      kill: () => kill(child, "SIGKILL"),
      stop: () => kill(child, "SIGTERM"),
      leave() {
        process.removeListener("exit", end);
        child.unref();
      },
    },
  };
}

/** A worker process; resolves once it takes jobs. It ends with this process, however that ends. */
export async function startWorker(
  server: Server,
  { script, args, log: logFile }: { script: string; args: readonly string[]; log: string },
): Promise<WorkerProcess> {
  const log = openSync(logFile, "a");
  const child = spawn(process.execPath, [join(sources, "demo", script), ...args], {
    stdio: ["pipe", "pipe", log],
    env: {
      ...cleanEnvironment(),
      SVC_SERVER_URL: server.url,
      ...(server.apiKey !== undefined && { SVC_API_KEY: server.apiKey }),
      ...(process.env.SVC_ENV && { SVC_ENV: process.env.SVC_ENV }),
    },
  });
  let ready = false;
  child.stdout?.once("data", () => {
    ready = true;
  });
  await until(
    "the worker to start",
    () => {
      if (ended(child))
        throw new Error(`the worker does not start:\n${readFileSync(logFile, "utf8").slice(-2_000)}`);
      return ready || undefined;
    },
    { msMax: startMsMax },
  );
  return { pid: child.pid ?? 0, kill: (signal) => kill(child, signal) };
}
