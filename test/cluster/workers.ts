import { existsSync } from "node:fs";
import { mkdtemp, readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { removeFolder, startProgram } from "../support/process.ts";
import { until } from "../support/until.ts";

const stepsProgram = resolve(import.meta.dir, "worker-program.ts");

/** What several workers wrote into one file: `{worker} start|stored {run} {step}`, `{worker} refused {code}`. */
export interface Journal {
  folder: string;
  lines(): Promise<string[][]>;
  /** Answers, at each call, the lines that are new since the last one. */
  follow(): () => Promise<string[][]>;
  remove(): Promise<void>;
}

export async function makeJournal(): Promise<Journal> {
  const folder = await mkdtemp(join(tmpdir(), "svc-journal-"));
  const path = join(folder, "journal");
  const linesFrom = async (offset: number) => {
    const bytes = existsSync(path)
      ? Buffer.from(await Bun.file(path).slice(offset).arrayBuffer())
      : Buffer.of();
    const whole = bytes.subarray(0, bytes.lastIndexOf(10) + 1);
    const lines = whole.toString().split("\n").slice(0, -1);
    return { lines: lines.map((line) => line.split(" ")), end: offset + whole.length };
  };
  return {
    folder,
    lines: async () => (await linesFrom(0)).lines,
    follow() {
      let offset = 0;
      return async () => {
        const { lines, end } = await linesFrom(offset);
        offset = end;
        return lines;
      };
    },
    remove: () => removeFolder(folder),
  };
}

export interface WorkerProcess {
  name: string;
  /** Lets step "two" of a gated worker go on. */
  openGate(): Promise<void>;
  freeze(): void;
  thaw(): void;
  kill9(): Promise<void>;
}

/**
 * A worker of its own process that takes the jobs of function `steps`, or runs another `program`, which is told its name,
 * the journal and `words`; ends with this process.
 */
export async function spawnWorker(
  name: string,
  server: { url: string; key: string },
  {
    journal,
    gated = false,
    program = stepsProgram,
    words = [],
  }: { journal: Journal; gated?: boolean; program?: string; words?: readonly string[] },
): Promise<WorkerProcess> {
  const folder = await mkdtemp(join(tmpdir(), "svc-worker-"));
  const gate = join(journal.folder, `gate-${name}`);
  const unset = Object.keys(process.env).filter((variable) => /^(SVC_|NATS_URL$|LOG_)/.test(variable));
  const running = startProgram(
    [
      "env",
      ...unset.flatMap((variable) => ["-u", variable]),
      `SVC_SERVER_URL=${server.url}`,
      `SVC_API_KEY=${server.key}`,
      process.execPath,
      "run",
      program,
      name,
      join(journal.folder, "journal"),
      ...(gated ? [gate] : []),
      ...words,
    ],
    folder,
  );
  await until(
    async () => {
      if (!running.running()) throw new Error(await readFile(join(folder, "output.log"), "utf8"));
      return (await journal.lines()).some((line) => line.join(" ") === `${name} ready`);
    },
    { about: `worker ${name} to start`, deadlineMs: 30_000, everyMs: 20 },
  );
  return {
    name,
    openGate: async () => void (await Bun.write(gate, "")),
    freeze: () => running.signal("SIGSTOP"),
    thaw: () => running.signal("SIGCONT"),
    async kill9() {
      if (running.running()) running.signal("SIGKILL");
      await running.exited;
      running.release();
      await removeFolder(folder);
    },
  };
}

interface Work {
  workers: readonly Pick<WorkerProcess, "kill9">[];
  /** Undefined where it did not start. */
  server: { stop(): Promise<unknown> } | undefined;
  journal: Pick<Journal, "remove"> | undefined;
}

/** Ends what a test of workers began: the workers first, so that none asks a server that is gone. */
export async function endWork({ workers, server, journal }: Work): Promise<void> {
  await Promise.all(workers.map((worker) => worker.kill9()));
  await server?.stop();
  await journal?.remove();
}

/** Steps that were begun although the server had said before that they are stored. */
export function stepsRepeated(lines: readonly string[][]): string[] {
  const stored = new Set<string>();
  return lines.flatMap(([worker, what, run, step]) => {
    const key = `${run} ${step}`;
    if (what === "stored") stored.add(key);
    return what === "start" && stored.has(key) ? [`${worker} began ${key} again`] : [];
  });
}
