import { existsSync, mkdtempSync, rmSync, watch } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import type { Command } from "commander";
import { systemClock } from "../kit/clock.ts";
import { announceServer, ownAddress } from "../kit/discovery-file.ts";
import type { Log } from "../kit/log.ts";
import { logLines } from "../kit/log-lines.ts";
import { createClient, type Delivery, SvcError } from "../sdk/index.ts";
import { runWord } from "../sdk/wire/pause-words.ts";
import { type Config, parseSettings } from "../settings/settings.ts";
import { call, type Input } from "./call.ts";
import { connect } from "./connection.ts";
import { CommandFailure, exitCodes, type Io, usage } from "./io.ts";
import { devEndHeldMs, devReloadMs, devSkipMs, devSkipRunsMax, devStopMs, devUnheardMs } from "./limits.ts";
import { operationNamed } from "./operations.ts";
import { cellOf, localTime, type Paint, paintOf } from "./show.ts";

/** Opens a page in a browser of this machine, or says that there is none. */
function openPage(url: string, { environment, note }: Pick<Io, "environment" | "note">): void {
  const name = process.platform === "darwin" ? "open" : "xdg-open";
  const program = Bun.which(name, { PATH: environment.PATH ?? "" });
  if (program === null) note(`${name} not found, so no browser opens: ${url}`);
  else Bun.spawn([program, url], { stdin: "ignore", stdout: "ignore", stderr: "ignore" });
}

const prefix = "events:";

/** Says once for each event name that it started no run: a misspelt name looks like a worker that hangs. */
async function tellUnheard(url: string, io: Io, signal: AbortSignal): Promise<void> {
  const client = createClient({ url, apiKey: "" });
  const seen = new Set<string>();
  const subscription = client.subscribe(`${prefix}>`, { signal }, async ({ topic, eventId }) => {
    const name = topic.slice(prefix.length);
    if (eventId === undefined || seen.has(name)) return;
    seen.add(name);
    // A run is there with its event; what debounce or batch gathers may come later.
    await io.clock.sleep(devUnheardMs, signal);
    if (signal.aborted) return;
    // A hint that cannot be given ends nothing.
    const found = await client.listRuns({ eventId, limit: 1 }).catch(() => undefined);
    if (found?.runs.length === 0)
      io.note(
        `${name} started no run: svc function list shows which events start functions (by debounce or batch, later)`,
      );
  });
  await subscription.done;
}

/** Starts a server in this process; handed in, so that other commands load none. */
export type StartServer = (
  config: Config,
  options: { clock: ReturnType<typeof systemClock>; log: Log },
) => Promise<{ url: string; stop(): Promise<void> }>;

interface DevFlags {
  port: string;
  grpcPort?: string;
  db: string;
  fresh?: boolean;
  worker?: string;
  skipTime?: boolean;
  open?: boolean;
}

const portDefault = "9123";

function configOf(flags: DevFlags, db: string, io: Io): Config {
  const grpc = flags.grpcPort === undefined ? [] : ["--grpc-port", flags.grpcPort];
  const parsed = parseSettings(["--dev", "--port", flags.port, ...grpc, "--db", db], io.environment);
  if (!parsed.ok) throw usage(parsed.errors.join("\n"));
  return parsed.config;
}

interface RunFrameData {
  runId?: string;
  functionId?: string;
  status?: string;
  pauseReason?: string;
  name?: string;
  timestamp?: string;
  error?: { message?: string };
}

const words: Readonly<Record<string, (paint: Paint) => (text: string) => string>> = {
  completed: ({ good }) => good,
  failed: ({ bad }) => bad,
  cancelled: ({ bad }) => bad,
};

/** One line of what happened to a run or a step; undefined for what says nothing new. */
export function frameLine(
  { topic, data }: Pick<Delivery, "topic" | "data">,
  paint: Paint,
): string | undefined {
  const { runId = "", functionId, status = "", pauseReason, name, timestamp, error } = data as RunFrameData;
  const time = paint.dim(timestamp === undefined ? "" : localTime(timestamp).slice(11));
  const isStep = topic.includes(".step.");
  if (isStep && !/\.(completed|failed)$/.test(topic)) return undefined;
  const word = isStep ? topic.slice(topic.lastIndexOf(".") + 1) : runWord(status, pauseReason);
  const shown = (words[word]?.(paint) ?? paint.busy)(word);
  const what = isStep ? `  step ${cellOf(name)}` : paint.strong(cellOf(functionId));
  const why = error?.message ? `: ${cellOf(error.message)}` : "";
  return `${time}  ${paint.dim(runId)}  ${what}  ${shown}${why}\n`;
}

const runEnds = /^system\.run\.[^.]+\.(completed|failed|cancelled)$/;

async function printRuns(url: string, io: Io, signal: AbortSignal): Promise<void> {
  const paint = paintOf(io);
  const client = createClient({ url, apiKey: "" });
  const subscription = client.subscribe("system.run.>", { signal }, (delivery) => {
    const line = frameLine(delivery as Delivery, paint);
    if (line === undefined) return;
    if (!runEnds.test(delivery.topic)) return io.out(line);
    // The server tells of a run's end and of its last steps apart, in any order.
    io.clock.after(devEndHeldMs, () => void io.out(line));
  });
  await subscription.done;
}

/** Ends sleeps as soon as they begin; a run that waits for an event or a child is left alone. */
async function skipSleeps(url: string, io: Io, signal: AbortSignal): Promise<void> {
  const connection = connect({ url, key: undefined, environment: undefined, org: undefined });
  const ask = <Answer>(operation: string, input: Input): Promise<Answer> =>
    call<Answer>(connection, operationNamed(operation), input, signal);
  while (!signal.aborted) {
    await io.clock.sleep(devSkipMs, signal);
    if (signal.aborted) return;
    const asked = { status: "RUN_STATUS_PAUSED", limit: devSkipRunsMax };
    const { runs = [] } = await ask<{ runs?: { id: string; pauseReason?: string }[] }>("runs.list", asked);
    for (const { id: runId, pauseReason } of runs) {
      if (pauseReason !== "sleep") continue;
      await ask("runs.resume", { runId, skipSleep: true }).catch((error) => {
        // The sleep may have ended by itself meanwhile.
        if (!(error instanceof SvcError) || error.status === 0) throw error;
      });
    }
  }
}

const sources = /\.(ts|tsx|mts|js|mjs|cjs|jsx|json)$/;
const aside = /(^|\/)(node_modules|\.[^/]+)(\/|$)/;

/** A worker file as a process of its own, started again when a source beside it changes. */
class WorkerFile {
  readonly #file: string;
  readonly #url: string;
  readonly #io: Io;
  #child: Bun.Subprocess | undefined;
  #turn: Promise<void> = Promise.resolve();
  #cancel = () => {};

  constructor(file: string, url: string, io: Io) {
    this.#file = file;
    this.#url = url;
    this.#io = io;
  }

  async run(signal: AbortSignal): Promise<void> {
    const watcher = watch(dirname(this.#file), { recursive: true }, (_event, name) => {
      if (typeof name !== "string" || !sources.test(name) || aside.test(name)) return;
      this.#cancel();
      this.#cancel = this.#io.clock.after(devReloadMs, () => {
        this.#io.note(`${name} changed: the worker starts again`);
        this.#turn = this.#turn.then(() => this.#restart());
      });
    });
    this.#start();
    await new Promise<void>((done) => {
      if (signal.aborted) return done();
      signal.addEventListener("abort", () => done(), { once: true });
    });
    watcher.close();
    this.#cancel();
    await this.#turn;
    await this.#stop();
  }

  #start(): void {
    const { environment, folder, note } = this.#io;
    const child = Bun.spawn([process.execPath, "run", this.#file], {
      cwd: folder,
      // Under one name it replaces the process before it, instead of being a second worker for a while. The
      // built executable runs as Bun when its environment says so.
      env: {
        ...{ SVC_WORKER_ID: "dev", ...environment, SVC_SERVER_URL: this.#url, BUN_BE_BUN: "1" },
        // For another server: this one has no keys.
        SVC_API_KEY: undefined,
      },
      stdin: "ignore",
      stdout: "inherit",
      stderr: "inherit",
    });
    this.#child = child;
    void child.exited.then((code) => {
      if (this.#child === child) note(`the worker ended with ${code}: it starts again when a source changes`);
    });
  }

  async #restart(): Promise<void> {
    await this.#stop();
    this.#start();
  }

  /** A worker drains on the first signal; one that does not leave is killed. */
  async #stop(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (!child || child.exitCode !== null) return;
    child.kill("SIGTERM");
    const kill = this.#io.clock.after(devStopMs, () => child.kill("SIGKILL"));
    await child.exited;
    kill();
  }
}

/** Says where the server is, to programs of the folder; what it answers takes that back. */
function announced(url: string, { folder, environment, note }: Io): () => void {
  const address = ownAddress(url);
  const { SVC_NO_DISCOVERY: isOff = "" } = environment;
  if (address === undefined || !["", "0", "false"].includes(isOff)) return () => {};
  try {
    return announceServer(folder, { url: address, apiKey: "", environment: "default" });
  } catch (error) {
    note(
      `.svc/engine.json cannot be written (${(error as Error).message}): name the server by SVC_SERVER_URL`,
    );
    return () => {};
  }
}

async function dev(flags: DevFlags, io: Io, startServer: StartServer): Promise<void> {
  const worker = flags.worker === undefined ? undefined : resolve(io.folder, flags.worker);
  if (worker !== undefined && !existsSync(worker)) throw usage(`--worker: ${worker} not found`);
  const temporary = flags.fresh ? mkdtempSync(join(tmpdir(), "svc-dev-")) : undefined;
  const db = temporary === undefined ? resolve(io.folder, flags.db) : join(temporary, "svc.db");
  const clock = systemClock();
  const log = logLines({ level: "warn", format: "text", clock, base: {} });
  try {
    const server = await startServer(configOf(flags, db, io), { clock, log }).catch((error: unknown) => {
      if (error instanceof CommandFailure) throw error;
      throw new CommandFailure(exitCodes.refused, error instanceof Error ? error.message : String(error));
    });
    const ended = new AbortController();
    const signal = AbortSignal.any([io.signal, ended.signal]);
    const leave = announced(server.url, io);
    try {
      await io.out(
        `svc dev on ${server.url}, data in ${db}${temporary ? " until it ends" : ""}; no key is needed\n`,
      );
      await io.out(
        `  docs       ${server.url}/docs\n  dashboard  ${server.url}/dashboard\n  emit       svc emit EVENT --data '{}' --server ${server.url}\n\n`,
      );
      if (flags.open) openPage(`${server.url}/dashboard`, io);
      await Promise.all([
        printRuns(server.url, io, signal),
        tellUnheard(server.url, io, signal),
        ...(flags.skipTime ? [skipSleeps(server.url, io, signal)] : []),
        ...(worker === undefined ? [] : [new WorkerFile(worker, server.url, io).run(signal)]),
      ]);
    } catch (error) {
      if (!signal.aborted) throw error;
    } finally {
      ended.abort();
      leave();
      await server.stop();
    }
  } finally {
    if (temporary !== undefined) rmSync(temporary, { recursive: true, force: true });
  }
}

/** `svc dev` */
export function addDev(program: Command, io: Io, startServer: StartServer): void {
  program
    .command("dev")
    .description(
      "A server without keys for one developer, with a worker that reloads, and runs as they happen.",
    )
    .option("--port <n>", "The port; 0 takes a free one.", portDefault)
    .option("--grpc-port <n>", "The port for gRPC: 9190, or none where that is taken.")
    .option("--db <file>", "The database file.", ".svc/svc.db")
    .option("--fresh", "A new database, gone at the end.")
    .option("--worker <file>", "A worker to run, and to start again when a source beside it changes.")
    .option("--open", "Open the dashboard in a browser.")
    .option("--skip-time", "End sleeps as soon as they begin.")
    .action((flags: DevFlags) => dev(flags, io, startServer));
}
