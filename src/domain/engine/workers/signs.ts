/** What is told of a worker: topic `system.worker.{id}.{change}`. */
export interface WorkerFrame {
  /** `health`: it gave a sign of life, or let a lease end without a word. */
  change: "connected" | "disconnected" | "health";
  environmentId: string;
  workerId: string;
  healthy: boolean;
  /** It finishes what it has and takes no more. */
  draining: boolean;
}

type Worker = Pick<WorkerFrame, "environmentId" | "workerId">;

/** Tells what is heard of workers; hints that may be lost. */
export interface WorkerSigns {
  connected(worker: Worker): void;
  disconnected(worker: Worker): void;
  /** A sign of life. */
  beat(worker: Worker): void;
  /** It said on its stream that it takes no more. */
  draining(worker: Worker): void;
}

export function openWorkerSigns(tell: ((frame: WorkerFrame) => void) | undefined): WorkerSigns {
  const drains = new Set<string>();
  const keyOf = ({ environmentId, workerId }: Worker) => `${environmentId}\n${workerId}`;
  const say = (change: WorkerFrame["change"], worker: Worker) =>
    tell?.({
      change,
      environmentId: worker.environmentId,
      workerId: worker.workerId,
      healthy: change !== "disconnected",
      draining: drains.has(keyOf(worker)),
    });
  return {
    connected(worker) {
      drains.delete(keyOf(worker));
      say("connected", worker);
    },
    disconnected(worker) {
      say("disconnected", worker);
      drains.delete(keyOf(worker));
    },
    beat: (worker) => say("health", worker),
    draining(worker) {
      drains.add(keyOf(worker));
      say("health", worker);
    },
  };
}
