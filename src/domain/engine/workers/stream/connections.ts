import { Fault, invalid, missing } from "../../../../kit/fault.ts";
import type { Counter } from "../../../../kit/metrics.ts";
import { version } from "../../../../kit/version.ts";
import type { DefinitionsCache } from "../../functions/definition.ts";
import type { Absences } from "../absences.ts";
import { leaseTermsOf } from "../registration.ts";
import type { RegisteredWorker } from "../registry.ts";
import { requireServing } from "../rights.ts";
import type { WorkerRecord } from "../rows.ts";
import { streamHeartbeatMs, streamRegisterMs } from "./limits.ts";
import type { StreamAnswer, StreamMessage } from "./messages.ts";
import type { StreamDeps, WorkerStream } from "./port.ts";
import { RegisteredStream } from "./worker-stream.ts";

type Register = NonNullable<StreamMessage["register"]>;

/** A run that was cancelled while a worker holds its lease. */
export interface CancelledRun {
  environmentId: string;
  runId: string;
  workerId: string;
  executionSeq: number;
  reason: string;
}

export type WorkerStreams = ReturnType<typeof openWorkerStreams>;

/** What one stream has of its own. */
type OwnDeps = Pick<StreamDeps, "written" | "rights" | "terms">;

export interface WorkerStreamsDeps extends Omit<StreamDeps, "written" | "terms"> {
  /** The longest that leases of a worker may last, which those that ask for no time get. */
  leaseMs: number;
  absences: Pick<Absences, "came" | "left" | "holds">;
  /** How long workers have to finish their jobs when the server stops. */
  drainMs: number;
  /** Stores the worker; rejects an invalid registration. */
  register: (environmentId: string, input: Register) => Promise<RegisteredWorker>;
  /** Deletes the row of a worker whose stream has ended, unless it has registered again. */
  forget: (worker: WorkerRecord) => Promise<void>;
  disconnects: Counter;
  definitions: Pick<DefinitionsCache, "known" | "current">;
}

const nameOf = ({ environmentId, id }: WorkerRecord) => ({ environmentId, workerId: id });

/** The first message, which must be `register` and arrive within `streamRegisterMs`. */
async function registration(
  { clock }: Pick<StreamDeps, "clock">,
  sent: AsyncIterator<StreamMessage>,
  signal: AbortSignal,
): Promise<Register> {
  let cancel = () => {};
  const late = new Promise<never>((_, reject) => {
    cancel = clock.after(streamRegisterMs, () =>
      reject(new Fault("deadline_exceeded", `no register within ${streamRegisterMs} ms`)),
    );
    const left = () => reject(signal.reason);
    if (signal.aborted) left();
    else signal.addEventListener("abort", left, { once: true });
  });
  try {
    const first = await Promise.race([sent.next(), late]);
    if (first.done || !first.value.register) throw invalid("register", "must be the first message");
    return first.value.register;
  } finally {
    cancel();
  }
}

export function openWorkerStreams(deps: WorkerStreamsDeps) {
  const { log, leaseMs, drainMs } = deps;
  const streams = new Map<string, WorkerStream>();
  const forgetting = new Set<Promise<void>>();
  let going: string | undefined;
  const keyOf = ({ environmentId, id }: WorkerRecord) => `${environmentId}\n${id}`;

  function open(worker: WorkerRecord, own: OwnDeps): WorkerStream {
    const key = keyOf(worker);
    const stream: WorkerStream = new RegisteredStream({ ...deps, ...own }, worker, (inOrder) => {
      if (streams.get(key) === stream) streams.delete(key);
      deps.disconnects.add(1);
      deps.absences.left(nameOf(worker), own.terms, worker.pollEnd && !inOrder);
      const forgotten = deps
        .forget(worker)
        .catch((error) => log.warn("worker.not_forgotten", { workerId: worker.id, error }))
        .finally(() => forgetting.delete(forgotten));
      forgetting.add(forgotten);
    });
    streams.get(key)?.close(new Fault("aborted", "the worker has opened another stream"));
    streams.set(key, stream);
    return stream;
  }

  async function listen(stream: WorkerStream, sent: AsyncIterator<StreamMessage>): Promise<void> {
    try {
      while (!stream.closed) {
        await stream.ready();
        const next = await sent.next();
        if (next.done) return await stream.leave();
        if (!stream.closed) stream.receive(next.value);
      }
    } catch (error) {
      if (!(error instanceof Fault)) log.error("worker.stream_failed", { error });
      else log.info("worker.stream_refused", { workerId: stream.worker.id, error });
      stream.close(error);
    }
  }

  return {
    /**
     * One worker's stream, from `register` to its end. It ends when `signal` aborts; a Fault as the reason is
     * sent to the worker.
     */
    async *connect(
      environmentId: string,
      messages: AsyncIterable<StreamMessage>,
      signal: AbortSignal,
      { written, rights }: Pick<StreamDeps, "written" | "rights">,
    ): AsyncGenerator<StreamAnswer> {
      if (going !== undefined) throw new Fault("unavailable", going);
      const sent = messages[Symbol.asyncIterator]();
      const register = await registration(deps, sent, signal);
      const worker = await deps.register(environmentId, register);
      await requireServing(rights, worker, deps.definitions);
      const terms = leaseTermsOf(register, leaseMs);
      deps.absences.came(nameOf(worker), terms);
      if (register.held) await deps.absences.holds(nameOf(worker), terms, register.held);
      const stream = open(worker, { written, rights, terms });
      const end = () => stream.close(signal.reason instanceof Fault ? signal.reason : undefined);
      if (signal.aborted) end();
      signal.addEventListener("abort", end, { once: true });
      if (going !== undefined) stream.shutdown(going, drainMs);
      void listen(stream, sent);
      try {
        // By now it polls: who has read this gets what is queued from then on.
        yield {
          kind: "registered",
          workerId: worker.id,
          heartbeatIntervalMs: Math.max(1, Math.floor(Math.min(streamHeartbeatMs, terms.leaseMs / 3))),
          clockOffMs: worker.clockOffMs,
          conflicts: worker.conflicts,
          leaseMs: register.lease_ms === undefined ? undefined : terms.leaseMs,
          serverVersion: worker.sdk === "" ? "" : version,
          openWaits: await deps.takesWaits(),
        };
        yield* stream.answers();
      } finally {
        signal.removeEventListener("abort", end);
        stream.close();
      }
    },

    /** Sends the cancellation to the worker, if its stream ends on this node. */
    cancelled({ environmentId, workerId, runId, executionSeq, reason }: CancelledRun) {
      streams.get(`${environmentId}\n${workerId}`)?.cancel(runId, executionSeq, reason);
    },

    /** The worker renewed leases over REST. */
    renewed(worker: WorkerRecord, jobIds: readonly string[]) {
      streams.get(keyOf(worker))?.renewed(jobIds);
    },

    /** The environment is gone: the streams of its workers end. */
    forgetEnvironment(environmentId: string) {
      for (const stream of [...streams.values()])
        if (stream.worker.environmentId === environmentId)
          stream.close(missing("environment", environmentId));
    },

    /** The tick of loop `workers.streams`: missing acks, leases that ended, missing heartbeats. */
    async lookOnce() {
      for (const stream of [...streams.values()]) stream.look();
    },

    /** Tells every worker that this server stops. */
    shutdown(reason: string) {
      going = reason;
      for (const stream of [...streams.values()]) stream.shutdown(reason, drainMs);
    },

    /** Resolves once the rows of workers whose streams have ended are deleted. */
    settled: async () => void (await Promise.all(forgetting)),
  };
}
