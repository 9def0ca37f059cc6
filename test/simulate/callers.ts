import type { Emitted } from "../../src/domain/engine/emit/answers.ts";
import { draftOf } from "../../src/domain/engine/emit/rules.ts";
import { Fault } from "../../src/kit/fault.ts";
import type { Chance } from "../support/chance.ts";
import { childInput, type Program, signalKey } from "../support/run-program.ts";
import { ask } from "./people.ts";
import { startAt } from "./time.ts";
import type { WorkerWorld } from "./worker.ts";

/** Emits until a node has said yes, under one idempotency key. */
export async function emitSurely(
  { time, environmentId, node }: WorkerWorld,
  chance: Chance,
  name: string,
  data: Record<string, unknown>,
  key: string,
): Promise<Emitted> {
  const draft = draftOf({ event: name, data, idempotencyKey: key }, undefined);
  const origin = { environmentId, source: "api", runId: undefined };
  for (;;) {
    const answer = node(chance)
      .engine.events.emit([draft], origin)
      .catch((error: unknown) => {
        if (error instanceof Fault && error.kind !== "unavailable") throw error;
        return undefined;
      });
    const [emitted] = (await Promise.race([answer, time.sleep(5_000)])) ?? [];
    if (emitted) return emitted;
    await time.sleep(chance.between(50, 500));
  }
}

/**
 * Sends what the run's waits wait for. The first wait of a run that has not yielded before gets its signal exactly once, at
 * any time after the run was accepted: it must be found whether it came before the wait or after. Later waits are sent
 * theirs until the end, since a signal from before the handler last began is not theirs.
 */
export function signal(
  world: WorkerWorld,
  chance: Chance,
  program: Program,
  input: string,
  over: () => boolean,
  /** Its handler may ask for the first wait more than once. */
  begunAgain = false,
): void {
  const first = begunAgain ? undefined : program.lines.find((line) => line.kind !== "step");
  for (const line of program.lines) {
    if (line.kind === "invoke")
      signal(
        world,
        chance.branch(line.name),
        world.programs.get(line.child)!,
        childInput(input, line.name),
        over,
        true,
      );
    if (line.kind !== "wait") continue;
    const data = { k: signalKey(input, line.name) };
    const own = chance.branch(data.k);
    if (line === first) void once(world, own, data);
    else void again(world, own, data, over);
  }
}

async function once(world: WorkerWorld, chance: Chance, data: { k: string }): Promise<void> {
  await world.time.sleep(chance.oneOf([0, 0, 50, 500, 5_000]));
  await emitSurely(world, chance, "signal", data, `signal-${data.k}`);
}

async function again(
  world: WorkerWorld,
  chance: Chance,
  data: { k: string },
  over: () => boolean,
): Promise<void> {
  for (let count = 0; !over(); count++) {
    await world.time.sleep(chance.between(2_000, 8_000));
    await emitSurely(world, chance, "signal", data, `signal-${data.k}-${count}`);
  }
}

/** A burst of events that one debounced start comes of, or a few when it pauses. */
export interface Burst {
  functionId: string;
  name: string;
  /** Acked ids, in order. */
  eventIds: string[];
  /** When a person's cancel of its entry was answered; events are over by then. */
  cancelledAt: number | undefined;
  /** A person tried to. */
  mayBeCancelled: boolean;
}

export async function burst(
  world: WorkerWorld,
  chance: Chance,
  { id: functionId, debounce }: Program,
  name: string,
): Promise<Burst> {
  const made: Burst = { functionId, name, eventIds: [], cancelledAt: undefined, mayBeCancelled: false };
  for (let place = 0, count = chance.between(1, 5); place < count; place++) {
    if (place > 0) await world.time.sleep(chance.between(0, 1.3 * debounce!.periodMs));
    const data = { burst: name, input: `${name}-${place}` };
    made.eventIds.push(
      (await emitSurely(world, chance, `go.${functionId}`, data, `${name}-${place}`)).eventId,
    );
  }
  if (chance.happens(0.2)) {
    await world.time.sleep(chance.between(0, debounce!.periodMs));
    made.mayBeCancelled = true;
    await ask(world, chance, "debounce.cancel", {
      envID: world.environmentId,
      fnID: functionId,
      key: Buffer.from(name).toString("base64url"),
    });
    made.cancelledAt = startAt + world.time.elapsed();
  }
  return made;
}
