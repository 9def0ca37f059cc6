import { Fault } from "../../src/kit/fault.ts";
import type { Call } from "../../src/kit/operation.ts";
import { sql } from "../../src/kit/sql.ts";
import type { Store } from "../../src/store/store.ts";
import type { Chance } from "../support/chance.ts";
import type { Steered } from "../support/engine-checkers.ts";
import { answerOf, type Program } from "../support/run-program.ts";
import type { WorkerWorld } from "./worker.ts";

/** What one person did to one run. */
export interface SteeredRun extends Steered {
  /** Asked for it to go on from one of its steps: what is behind that is done again. */
  begunAgain: boolean;
  /** What a step was given instead of its own output, once the server said yes to it; no step is given two. */
  given: Map<string, string>;
}

type Decision = { ok: true; output: unknown } | { ok: false; fault: Fault };

/** A call of somebody who may do everything. */
export const callOf = ({ environmentId }: Pick<WorkerWorld, "environmentId">): Call => ({
  caller: { kind: "key", id: "ak_person", orgId: "org_default", roles: ["admin"] },
  environmentId,
  requestId: "req",
  receivedAt: 0,
  signal: new AbortController().signal,
  idempotencyKey: undefined,
  runId: undefined,
  address: "",
  isSecure: false,
  screen: () => undefined,
  onRenewed() {},
});

/** Performs an operation on some node until one of them decides; `decides` is of faults that are mostly tried again. */
export async function ask(
  world: WorkerWorld,
  chance: Chance,
  name: string,
  input: object,
  decides: (fault: Fault) => boolean = () => false,
): Promise<Decision> {
  const { time, node } = world;
  const call = callOf(world);
  for (;;) {
    const operation = node(chance).operations.find((one) => one.name === name);
    if (operation?.mode !== "unary") throw new Error(`no operation ${name}`);
    const answer = Promise.resolve(operation.handle(input, call, async () => {})).then(
      (output): Decision => ({ ok: true, output }),
      (error: unknown): Decision | undefined => {
        if (!(error instanceof Fault)) return undefined;
        const isDecided = !["unavailable", "aborted"].includes(error.kind) || decides(error);
        return isDecided ? { ok: false, fault: error } : undefined;
      },
    );
    const decision = await Promise.race([answer, time.sleep(5_000)]);
    if (decision) return decision;
    await time.sleep(chance.between(50, 500));
  }
}

/** One person steers one run, a few times. */
export async function steer(
  world: WorkerWorld,
  chance: Chance,
  { program, input, runId }: { program: Program; input: string; runId: string },
  mark: SteeredRun,
): Promise<void> {
  const { time } = world;
  const steps = program.lines.filter((line) => line.kind === "step").map((line) => line.name);

  /** Writes over a step that was not written over before. */
  async function give(operation: "runs.inject" | "steps.patch"): Promise<void> {
    const left = steps.filter((name) => !mark.patched.some(({ own }) => own === answerOf(input, name)));
    if (left.length === 0) return;
    const name = chance.oneOf(left);
    const instead = `${name} of ${input}, by a person`;
    mark.patched.push({ own: answerOf(input, name), instead });
    const stepId = `${runId}:${name}:0`;
    const output = JSON.stringify(instead);
    const { ok } = await ask(
      world,
      chance,
      operation,
      operation === "steps.patch" ? { stepId, output } : { runId, stepId, newOutput: output },
    );
    if (ok) mark.given.set(stepId, output);
  }

  async function resume(): Promise<void> {
    const fromStep = chance.happens(0.3) ? `${runId}:${chance.oneOf(program.lines).name}:0` : undefined;
    if (fromStep !== undefined) {
      mark.begunAgain = true;
      world.mayRepeat.add(runId);
    }
    await ask(world, chance, "runs.resume", { runId, ...(fromStep && { fromStep }) });
  }

  for (let times = chance.between(1, 3); times > 0; times--) {
    await time.sleep(chance.between(0, 6_000));
    switch (chance.oneOf(["cancel", "patch", "resume", "pause", "pause", "pause"])) {
      case "cancel": {
        const decision = await ask(world, chance, "runs.cancel", { id: runId, reason: "enough" });
        if (decision.ok) mark.cancelled = true;
        break;
      }
      case "patch":
        await give("steps.patch");
        break;
      case "resume":
        await resume();
        break;
      default:
        await ask(world, chance, "runs.pause", { runId });
        await time.sleep(chance.between(0, 3_000));
        if (chance.happens(0.5)) await give("runs.inject");
        await resume();
    }
  }
}

/** What a person holds for ever, somebody lets go on: tried until the two minutes after the last resume are over. */
export async function letGoOn(world: WorkerWorld, chance: Chance, store: Store): Promise<void> {
  const held = await store.all<{ run_id: string }>(sql`SELECT run_id FROM executions WHERE state = 'held'`);
  for (const { run_id: runId } of held) await ask(world, chance, "runs.resume", { runId });
}
