import type { Instant } from "../../../kit/clock.ts";
import { Fault } from "../../../kit/fault.ts";
import { workerSilenceMsMax } from "../../../kit/limits.ts";
import type { Counter } from "../../../kit/metrics.ts";
import type { Basics, Session, Store } from "../../../store/store.ts";
import type { Runs } from "../runs/service.ts";
import type { ConnectedWorkers } from "../serving/service.ts";
import { type RegisterWorkerInput, readRegistration } from "./registration.ts";
import * as rows from "./rows.ts";

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
type WorkerFrames = ReturnType<typeof openWorkerFrames>;

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

/** A poll counts as a heartbeat, which is stored this often at most. */
const heartbeatEveryMs = 10_000;
/** A worker may register again on another node: its row is read again after this. */
const recordKeptMs = 5_000;

const functionsLoggedMax = 10;

const howToRegister = "register it first (RegisterFunction, or svc function register)";

/** `conflicts`: functions of which another connected worker serves another definition. */
export type LiveWorker = rows.WorkerRecord & { conflicts: string[] };
/** `unknown`: ids among its functions that no function has. */
export type RegisteredWorker = LiveWorker & { unknown: string[] };

type WorkerKey = Pick<rows.WorkerRecord, "environmentId" | "id">;

export interface WorkerRegistryDeps extends Basics<"store" | "clock" | "log"> {
  shareEnvironment: (session: Session, environmentId: string) => Promise<void>;
  runs: Pick<Runs, "renew">;
  /** Answers those of the ids that no function of the environment has. */
  unknownFunctions: (environmentId: string, ids: readonly string[]) => Promise<string[]>;
  frames: WorkerFrames;
  serving: Pick<ConnectedWorkers, "changed" | "refresh" | "conflictsOf" | "forgetEnvironment">;
  /** Tells the other nodes that a worker of the environment came or went; a hint that may be lost. */
  publishRegistered: (environmentId: string) => void;
  disconnects: Counter;
}

/** Registered workers: their rows in the store, what this node remembers of them, and their heartbeats. */
export class WorkerRegistry {
  readonly #deps: WorkerRegistryDeps;
  readonly #records = new Map<string, { record: rows.WorkerRecord; readAt: Instant }>();
  /** Heartbeats that `flushHeartbeats` stores together. */
  readonly #heartbeats = new Map<string, WorkerKey & { at: Instant; activeJobs: number | null }>();

  constructor(deps: WorkerRegistryDeps) {
    this.#deps = deps;
  }

  async register(
    environmentId: string,
    input: RegisterWorkerInput,
    transport: rows.WorkerRecord["transport"],
  ): Promise<RegisteredWorker> {
    const { store, shareEnvironment, clock, frames, serving, log } = this.#deps;
    const now = clock.now();
    const registration = readRegistration(input, transport, now);
    const unknown = await this.#unknownOf(environmentId, registration, transport);
    const record = { ...registration, environmentId, registeredAt: now, lastHeartbeatAt: now };
    await store.write(async (session) => {
      await shareEnvironment(session, environmentId);
      await rows.upsertWorker(session, record);
    });
    this.#records.set(keyOf(record), { record, readAt: now });
    frames.connected({ environmentId, workerId: record.id });
    const { id: workerId, clockOffMs } = record;
    if (clockOffMs !== null) log.warn("worker.clock_off", { environmentId, workerId, clockOffMs });
    serving.changed(environmentId);
    this.#deps.publishRegistered(environmentId);
    return { ...record, conflicts: await this.#conflictsOf(record), unknown };
  }

  async #conflictsOf(worker: rows.WorkerRecord): Promise<string[]> {
    if (worker.definitionHashes === null) return [];
    const { serving, log } = this.#deps;
    const { environmentId, id: workerId } = worker;
    await serving.refresh([environmentId]);
    const conflicts = serving.conflictsOf(worker);
    const functionIds = conflicts.slice(0, functionsLoggedMax);
    if (conflicts.length > 0)
      log.warn("worker.definition_conflict", { environmentId, workerId, functionIds });
    return conflicts;
  }

  /** A stream is refused for unknown function ids; a polling worker is warned, and may register them yet. */
  async #unknownOf(
    environmentId: string,
    { id: workerId, functionIds }: Pick<rows.WorkerRecord, "id" | "functionIds">,
    transport: rows.WorkerRecord["transport"],
  ): Promise<string[]> {
    const unknown = await this.#deps.unknownFunctions(environmentId, functionIds);
    if (unknown.length === 0) return unknown;
    if (transport === "stream") {
      const message = `function_ids: function ${unknown[0]} is not registered: ${howToRegister}`;
      throw new Fault("failed_precondition", message, { field: "function_ids" });
    }
    this.#deps.log.warn("worker.functions_unknown", {
      // The worker's answer names the functions. Their ids come from outside: the log has only their number.
      ...{ environmentId, workerId, count: unknown.length, next: howToRegister },
    });
    return unknown;
  }

  /** The worker that sends this request; the request counts as a heartbeat. Throws `not_found`. */
  async seen(environmentId: string, id: string): Promise<rows.WorkerRecord> {
    const { store, clock } = this.#deps;
    const key = keyOf({ environmentId, id });
    const now = clock.now();
    let entry = this.#records.get(key);
    if (!entry || now - entry.readAt > recordKeptMs) {
      const record = await rows.getWorker(store, environmentId, id);
      if (!record) {
        this.#records.delete(key);
        throw new Fault("not_found", `worker ${id.slice(0, 100)} is not registered`);
      }
      entry = { record, readAt: now };
      this.#records.set(key, entry);
    }
    const last = this.#heartbeats.get(key)?.at ?? entry.record.lastHeartbeatAt;
    if (now - last >= heartbeatEveryMs)
      this.#heartbeats.set(key, { environmentId, id, at: now, activeJobs: null });
    return entry.record;
  }

  /** Renews the leases of `jobs` and stores the heartbeat, in one transaction. */
  async recordHeartbeat(
    { environmentId, id }: WorkerKey,
    {
      activeJobs,
      jobs,
      leaseMs,
    }: { activeJobs: number; jobs: readonly { runId: string; executionSeq: number }[]; leaseMs: number },
  ): Promise<void> {
    const { store, clock, runs } = this.#deps;
    const now = clock.now();
    await store.write(async (session) => {
      if (jobs.length > 0)
        await runs.renew(session, { environmentId, workerId: id, leaseUntil: now + leaseMs, jobs });
      await rows.recordHeartbeats(session, [{ environmentId, id, at: now, activeJobs }]);
    });
    this.#noteStored({ environmentId, id, at: now });
  }

  /** Stores the heartbeats of polls, and drops records of workers that have not polled for long. */
  async flushHeartbeats(): Promise<void> {
    const now = this.#deps.clock.now();
    const batch = [...this.#heartbeats.values()];
    if (batch.length > 0) {
      await this.#deps.store.write((session) => rows.recordHeartbeats(session, batch));
      for (const heartbeat of batch) this.#noteStored(heartbeat);
    }
    for (const [key, { readAt }] of this.#records)
      if (now - readAt > workerSilenceMsMax) this.#records.delete(key);
  }

  #noteStored({ environmentId, id, at }: WorkerKey & { at: Instant }): void {
    const key = keyOf({ environmentId, id });
    const entry = this.#records.get(key);
    if (entry) entry.record.lastHeartbeatAt = at;
    this.#heartbeats.delete(key);
    this.#deps.frames.heartbeat({ environmentId, workerId: id });
  }

  /** Workers with a recent heartbeat. */
  async listAlive(environmentId: string): Promise<LiveWorker[]> {
    const { store, clock, serving } = this.#deps;
    const aliveSince = clock.now() - workerSilenceMsMax;
    const [workers] = await Promise.all([
      rows.listWorkers(store, environmentId),
      serving.refresh([environmentId]),
    ]);
    return workers
      .filter(({ lastHeartbeatAt }) => lastHeartbeatAt >= aliveSince)
      .map((worker) => ({ ...worker, conflicts: serving.conflictsOf(worker) }));
  }

  /** The worker's stream has ended: deletes its row, unless it has registered again since. */
  async forget(worker: rows.WorkerRecord): Promise<void> {
    const gone = await this.#deps.store.write((session) => rows.forgetWorker(session, worker));
    this.#records.delete(keyOf(worker));
    if (gone > 0) this.#left(worker);
  }

  /** The worker says goodbye. False where another process has its name. */
  async leave(worker: WorkerKey & { holder: string | null }): Promise<boolean> {
    const gone = await this.#deps.store.write((session) => rows.partFrom(session, worker));
    if (gone === 0) return false;
    this.#records.delete(keyOf(worker));
    this.#heartbeats.delete(keyOf(worker));
    this.#left(worker);
    return true;
  }

  #left({ environmentId, id: workerId }: WorkerKey): void {
    const { frames, serving, publishRegistered } = this.#deps;
    frames.disconnected({ environmentId, workerId });
    serving.changed(environmentId);
    publishRegistered(environmentId);
  }

  /** Deletes the rows of workers without a heartbeat for `workerSilenceMsMax`. */
  async forgetSilent(write: Store["write"]): Promise<void> {
    const { clock, disconnects, frames } = this.#deps;
    const before = clock.now() - workerSilenceMsMax;
    const gone = await write((session) => rows.forgetSilent(session, before));
    disconnects.add(gone.length);
    for (const { environment_id: environmentId, id: workerId } of gone)
      frames.disconnected({ environmentId, workerId });
  }

  forgetEnvironment(environmentId: string): void {
    this.#deps.serving.forgetEnvironment(environmentId);
    for (const [key, { record }] of this.#records)
      if (record.environmentId === environmentId) this.#records.delete(key);
  }
}

const keyOf = ({ environmentId, id }: WorkerKey): string => `${environmentId}\n${id}`;
