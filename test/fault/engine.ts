import { resolve } from "node:path";
import { emitUntilAcked, type Tenant } from "../cluster/load.ts";
import { type Journal, spawnWorker, type WorkerProcess } from "../cluster/workers.ts";
import type { AckedEmit } from "../support/checkers.ts";
import type { Steered } from "../support/engine-checkers.ts";
import { answerOf, type Program } from "../support/run-program.ts";
import { callerOf } from "../support/server.ts";
import type { Chance } from "./faults.ts";
import { patchOf, programs, startOf } from "./programs.ts";

const program = resolve(import.meta.dir, "engine-worker.ts");

/** A worker that runs programs.ts. */
export const spawnEngineWorker = (
  name: string,
  server: { url: string; key: string },
  journal: Journal,
  transport: "rest" | "stream",
): Promise<WorkerProcess> => spawnWorker(name, server, { journal, program, words: [transport] });

/** Whoever starts, signals and steers runs of programs.ts, and what they were told. */
export interface EnginePeople {
  acked: AckedEmit[];
  /** Acked events of debounced bursts. */
  bursts: Map<string, string[]>;
  steered: Map<string, Steered>;
  /** Starts, bursts and steering, as chance wants it, until `over`; resolves when every answer is in. */
  work(chance: Chance, over: () => boolean): Promise<void>;
  /** Lets a run go on that somebody paused. */
  resume(runId: string): Promise<void>;
  /** No more signals. */
  stop(): Promise<void>;
}

const startEveryMs: Record<string, number> = { mixed: 200, limited: 150, broken: 700 };
const burstMax = 4;
const triesMax = 2_000;

export function openEnginePeople(url: string, tenant: Tenant, journal: Journal): EnginePeople {
  const { rpc } = callerOf(
    () => url,
    () => tenant.key,
  );
  const acked: AckedEmit[] = [];
  const bursts = new Map<string, string[]>();
  const steered = new Map<string, Steered>();
  const mayBeSteered: { runId: string; input: string }[] = [];
  let number = 0;
  let stopped = false;

  const emit = (event: string, data: object, idempotencyKey: string) =>
    emitUntilAcked({ event, data, idempotencyKey }, { url: () => url, tenant, triesMax });

  /** Until the server decides: answers the status, and the code of a refusal. */
  async function ask(method: string, body: object): Promise<{ ok: boolean; body: Record<string, unknown> }> {
    for (let tries = 0; tries < triesMax; tries++) {
      const answer = await rpc("SvcService", method, body).catch(() => undefined);
      if (answer && answer.status < 500 && answer.status !== 429 && answer.body?.code !== "aborted")
        return { ok: answer.status === 200, body: answer.body };
      await Bun.sleep(100);
    }
    throw new Error(`${method} was never answered`);
  }

  async function startRuns({ id, concurrency }: Program, over: () => boolean): Promise<void> {
    while (!over()) {
      const input = `${id}-${++number}`;
      const lane = concurrency && `lane-${number % concurrency.keys}`;
      const one = await emit(startOf(id), { input, lane }, input);
      acked.push(one);
      const [runId] = one.runIds;
      if (one.runIds.length !== 1) throw new Error(`${input} started ${one.runIds.length} runs`);
      if (id !== "broken") mayBeSteered.push({ runId: runId!, input });
      await Bun.sleep(startEveryMs[id]!);
    }
  }

  async function startBursts(over: () => boolean): Promise<void> {
    while (!over()) {
      const burst = `burst-${++number}`;
      for (let place = 0; place < 1 + (number % burstMax); place++) {
        const { eventId } = await emit("burst", { burst, number: place }, `${burst}-${place}`);
        bursts.set(burst, [...(bursts.get(burst) ?? []), eventId]);
        await Bun.sleep(100);
      }
      await Bun.sleep(300);
    }
  }

  const resume = async (runId: string) => {
    await ask("ResumeRun", { run_id: runId });
  };

  async function steer(chance: Chance, over: () => boolean): Promise<void> {
    while (!over()) {
      await Bun.sleep(250);
      const place = Math.floor(chance() * mayBeSteered.length);
      const [chosen] = mayBeSteered.splice(place, 1);
      if (!chosen) continue;
      const { runId, input } = chosen;
      const mark: Steered = { cancelled: false, patched: [] };
      steered.set(runId, mark);
      const what = chance();
      if (what < 0.3) {
        const { ok, body } = await ask("CancelRun", { id: runId, reason: "enough" });
        // A run whose worker was lost is undone first: its end is decided all the same.
        mark.cancelled = ok && (body.status === "RUN_STATUS_CANCELLED" || body.phase === "compensating");
      } else if (what < 0.7) {
        await ask("PauseRun", { run_id: runId });
        await Bun.sleep(chance() * 1_000);
        await resume(runId);
      } else {
        const own = answerOf(input, "line-0");
        const instead = patchOf(input, "line-0");
        mark.patched.push({ own, instead });
        await ask("PatchStep", { step_id: `${runId}:line-0:0`, output: instead });
      }
    }
  }

  // A wait that a handler is about to ask for gets its signal once; it must not be lost, nor must the run ask in vain.
  const fresh = journal.follow();
  const signalling = (async () => {
    const sent: Promise<unknown>[] = [];
    for (let count = 0; !stopped; ) {
      for (const [, what, , key] of await fresh())
        if (what === "wait")
          sent.push(emit("signal", { k: key! }, `signal-${key}-${++count}`).catch(() => {}));
      await Bun.sleep(50);
    }
    await Promise.all(sent);
  })();

  return {
    acked,
    bursts,
    steered,
    resume,
    async work(chance, over) {
      const starters = programs.filter(({ id }) => id in startEveryMs);
      await Promise.all([
        ...starters.map((one) => startRuns(one, over)),
        startBursts(over),
        steer(chance, over),
      ]);
    },
    async stop() {
      stopped = true;
      await signalling;
    },
  };
}
