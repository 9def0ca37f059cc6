/** A change of a worker, published to topic `system.worker.{id}.{change}`. */
export interface WorkerFrame {
  /** `health`: it sent a heartbeat, or let a lease end without a report. */
  change: "connected" | "disconnected" | "health";
  environmentId: string;
  workerId: string;
  healthy: boolean;
  /** It finishes its jobs and takes no more. */
  draining: boolean;
}

type WorkerRef = Pick<WorkerFrame, "environmentId" | "workerId">;

/** Announces changes of workers; hints that may be lost. */
export type WorkerFrames = ReturnType<typeof openWorkerFrames>;

export function openWorkerFrames(announce: ((frame: WorkerFrame) => void) | undefined) {
  const drains = new Set<string>();
  const keyOf = ({ environmentId, workerId }: WorkerRef) => `${environmentId}\n${workerId}`;
  const send = (change: WorkerFrame["change"], worker: WorkerRef) =>
    announce?.({
      change,
      environmentId: worker.environmentId,
      workerId: worker.workerId,
      healthy: change !== "disconnected",
      draining: drains.has(keyOf(worker)),
    });
  return {
    connected(worker: WorkerRef) {
      drains.delete(keyOf(worker));
      send("connected", worker);
    },
    disconnected(worker: WorkerRef) {
      send("disconnected", worker);
      drains.delete(keyOf(worker));
    },
    heartbeat: (worker: WorkerRef) => send("health", worker),
    /** The worker refused a job because it is draining. */
    draining(worker: WorkerRef) {
      drains.add(keyOf(worker));
      send("health", worker);
    },
  };
}
