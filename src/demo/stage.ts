import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { SvcError } from "../sdk/index.ts";
import { type Server, startServer, startWorker, until, type WorkerProcess } from "./processes.ts";

/** Tells how far the demo is: one live line on a terminal, a plain line every tenth elsewhere. */
type Progress = ReturnType<typeof createProgress>;

const barWidth = 30;

function createProgress(out: NodeJS.WriteStream = process.stdout) {
  let live = false;
  let lastTenth = -1;
  const clear = () => {
    if (live) out.write("\r\x1b[K");
    live = false;
  };
  return {
    show(done: number, total: number, what: string) {
      const share = total === 0 ? 1 : done / total;
      if (out.isTTY) {
        const filled = Math.round(share * barWidth);
        out.write(
          `\r\x1b[K  [${"#".repeat(filled)}${".".repeat(barWidth - filled)}] ${done}/${total} ${what}`,
        );
        live = true;
        return;
      }
      const tenth = Math.floor(share * 10);
      if (tenth > lastTenth) out.write(`  ${done}/${total} ${what}\n`);
      lastTenth = Math.max(tenth, lastTenth);
    },
    /** A line that stays. */
    say(text: string) {
      clear();
      out.write(`${text}\n`);
    },
  };
}

/** What a killed worker held comes back after this. */
const ownLeaseMs = 3_000;

/** What a demo plays on: a server, and the workers that it starts. All of it ends with the demo. */
export interface Stage {
  server: Server;
  folder: string;
  progress: Progress;
  /** A process of `script`, a file of this folder; resolves once it takes work. */
  startWorker(script: string, args: readonly string[]): Promise<WorkerProcess>;
}

/** A server that is killed and started again is away for a moment: asked until it answers. */
export async function patiently<Result>(about: string, ask: () => Promise<Result>): Promise<Result> {
  const { answer } = await until(
    about,
    () =>
      ask().then(
        (answer) => ({ answer }),
        (error: unknown) => {
          if (error instanceof SvcError && error.retryable) return undefined;
          throw error;
        },
      ),
    { msMax: 30_000, everyMs: 200 },
  );
  return answer;
}

/** Plays a demo, which answers whether all is as promised; answers the exit code. */
export async function play(
  { keep, ownServer }: { keep: boolean; ownServer: boolean },
  demo: (stage: Stage) => Promise<boolean>,
): Promise<number> {
  const progress = createProgress();
  const folder = mkdtempSync(join(tmpdir(), "svc-demo-"));
  const workers: WorkerProcess[] = [];
  let server: Server | undefined;

  async function leave(): Promise<void> {
    await Promise.all(workers.map((worker) => worker.kill("SIGKILL")));
    if (keep && server?.own) {
      server.own.leave();
      progress.say(
        `\nThe server runs on: ${server.url}, key in ${server.own.keyFile}. End it: kill ${server.own.pid()}`,
      );
      return;
    }
    await server?.own?.stop();
    rmSync(folder, { recursive: true, force: true });
  }

  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    process.once(signal, () => void leave().finally(() => process.exit(130)));
  }
  try {
    server = await openServer(folder, ownServer);
    const own = server;
    progress.say(
      `server    ${own.url}${own.own ? ` (started for this, data in ${folder})` : " (SVC_SERVER_URL)"}`,
    );
    const stage: Stage = {
      ...{ server: own, folder, progress },
      async startWorker(script, args) {
        const worker = await startWorker(own, { script, args, log: join(folder, "worker.log") });
        workers.push(worker);
        return worker;
      },
    };
    return (await demo(stage)) ? 0 : 1;
  } catch (error) {
    progress.say(`The demo could not go on: ${error instanceof Error ? error.message : error}`);
    return 1;
  } finally {
    await leave();
  }
}

async function openServer(folder: string, ownServer: boolean): Promise<Server> {
  const url = process.env.SVC_SERVER_URL;
  if (!url) return startServer(folder, { SVC_LEASE_MS: String(ownLeaseMs) });
  if (ownServer) throw new Error("a demo that kills its server needs its own: unset SVC_SERVER_URL");
  return { url, apiKey: process.env.SVC_API_KEY };
}
