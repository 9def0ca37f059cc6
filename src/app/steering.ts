import { publishingSteps } from "../domain/engine/runs/step-moves.ts";
import { controlChannel, openControls } from "../domain/engine/steering/controls.ts";
import { steeringOperations } from "../domain/engine/steering/operations.ts";
import { openSteering } from "../domain/engine/steering/service.ts";
import type { Workers } from "../domain/engine/workers/service.ts";
import type { Store } from "../store/store.ts";
import type { OutboxPart } from "./outbox.ts";
import type { Host, PartShape } from "./part.ts";
import type { RunsPart } from "./runs.ts";

export interface SteeringNeeds {
  runsPart: RunsPart;
  workers: Pick<Workers, "cancelled">;
  outbox: Pick<OutboxPart, "enqueueControl">;
}

/**
 * What people do to runs: cancel, pause, resume, and patch steps. The node whose worker holds the run hears
 * of it over the bus.
 */
export function openSteeringPart(host: Host, needs: SteeringNeeds) {
  const { store, clock, log, bus } = host;
  const { runs, definitionAt, quotas, observers, runFrames, stepFrames } = needs.runsPart;
  const control = controlChannel(bus);
  const controls = openControls({ clock, send: control.publish });
  control.listen(controls.receive);
  controls.onControl(({ kind, workerId, ...message }) => {
    if (kind === "cancel" && workerId !== null) needs.workers.cancelled({ ...message, workerId });
  });
  /** The same through another store, for who adds to its transactions. */
  const steeringOn = (through: Store) =>
    openSteering({
      ...{ store: publishingSteps(through, stepFrames), clock, log, controls, runs },
      onQueued: observers.queued,
      enqueue: needs.outbox.enqueueControl,
      onPatched: stepFrames.patched,
      onResumed: runFrames.resumed,
      onMoved: runFrames.moved,
      definitionOf: definitionAt,
      noteRevived: quotas.noteRevived,
    });
  const steering = steeringOn(store);
  return {
    ...{ steering, steeringOn },
    operations: steeringOperations(steering),
    duties: [
      {
        duty: "retention",
        name: "runs.resumes",
        about: "Deletes the notes of resumed runs after two minutes.",
        everyMs: 60_000,
        tick: steering.forgetOnce,
      },
    ],
  } satisfies PartShape;
}
