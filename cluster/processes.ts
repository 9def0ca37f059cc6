import { spawn } from "node:child_process";
import { closeSync, existsSync, mkdirSync, openSync, readFileSync } from "node:fs";
import { dirname } from "node:path";
import { until } from "./until.ts";

/** A process that outlives the one that started it. The number alone may belong to somebody else tomorrow. */
export interface ProcessMark {
  pid: number;
  /** Boot of the machine and the process's start in clock ticks since then: no second process has both. */
  startedAt: string;
}

const bootId = (): string => readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim();

function markOf(pid: number): ProcessMark | undefined {
  try {
    // The name of the program stands in parentheses and may hold anything, so fields are counted behind it.
    const fields = readFileSync(`/proc/${pid}/stat`, "utf8").split(") ").at(-1)?.split(" ") ?? [];
    const [state] = fields;
    if (state === "Z" || state === "X") return undefined;
    return { pid, startedAt: `${bootId()}:${fields[19]}` };
  } catch {
    return undefined;
  }
}

export const isRunning = (mark: ProcessMark | undefined): mark is ProcessMark =>
  mark !== undefined && markOf(mark.pid)?.startedAt === mark.startedAt;

export interface StartOptions {
  folder: string;
  log: string;
  environment?: Record<string, string>;
}

/** This process's variables without those that svc or its parts would read: parts get exactly theirs. */
function plainEnvironment(): Record<string, string> {
  const entries = Object.entries(process.env).filter(([name]) => !/^(SVC_|NATS_|LOG_|PG)/.test(name));
  return Object.fromEntries(entries) as Record<string, string>;
}

/** Starts a program in a session of its own; output is appended to `log`. */
export function startDetached(command: string[], options: StartOptions): ProcessMark {
  mkdirSync(dirname(options.log), { recursive: true });
  const log = openSync(options.log, "a", 0o600);
  try {
    const child = spawn(command[0] as string, command.slice(1), {
      cwd: options.folder,
      detached: true,
      stdio: ["ignore", log, log],
      env: { ...plainEnvironment(), ...options.environment },
    });
    child.unref();
    const mark = child.pid === undefined ? undefined : markOf(child.pid);
    if (!mark) throw new Error(`${command[0]} ended at its start:\n${endOf(options.log)}`);
    return mark;
  } finally {
    closeSync(log);
  }
}

/** The last lines of a log. */
export const endOf = (log: string): string =>
  existsSync(log) ? readFileSync(log, "utf8").slice(-2_000).trimEnd() : "";

/** Waits for a started program to be `ready`; throws with its last words when it ends instead. */
export async function untilReady(
  about: string,
  mark: ProcessMark,
  log: string,
  ready: () => Promise<boolean>,
  deadlineMs = 20_000,
): Promise<void> {
  const outcome = await until(async () => (isRunning(mark) ? (await ready()) && "ready" : "ended"), {
    about: `${about} (its log: ${log})`,
    deadlineMs,
    everyMs: 25,
  });
  if (outcome === "ended") throw new Error(`${about} ended at its start; the end of ${log}:\n${endOf(log)}`);
}

/** Signals exactly this process and waits for its end. One that does not end in time is killed; answers whether. */
export async function stopProcess(
  mark: ProcessMark,
  signal: NodeJS.Signals,
  patienceMs: number,
): Promise<"ended" | "killed"> {
  const ended = () => !isRunning(mark);
  const send = (name: NodeJS.Signals) => {
    if (!isRunning(mark)) return;
    try {
      process.kill(mark.pid, name);
    } catch (error) {
      // It ended by itself between the look and the signal.
      if ((error as { code?: unknown }).code !== "ESRCH") throw error;
    }
  };
  send(signal);
  const wait = (deadlineMs: number) =>
    until(ended, { about: `process ${mark.pid} to end`, deadlineMs, everyMs: 20 });
  try {
    await wait(patienceMs);
    return "ended";
  } catch {
    send("SIGKILL");
    await wait(10_000);
    return "killed";
  }
}
