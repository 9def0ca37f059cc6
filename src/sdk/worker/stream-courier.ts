import { SvcError } from "../wire/errors.ts";
import { pause } from "../wire/retry.ts";
import type { Transport } from "../wire/transport.ts";
import type { Report } from "../wire/wire.ts";
import type { Courier, CourierOptions, Sending } from "./courier.ts";
import { type Stamp, stamp } from "./lease.ts";
import { LeaseRefreshes, type LeaseRefreshMessage } from "./lease-refreshes.ts";
import { createReopening } from "./reopening.ts";
import { type ReportedMessage, StreamReports } from "./stream-reports.ts";
import { openStreamSocket, type StreamSocket } from "./stream-socket.ts";
import { assignmentOf, type JobMessage } from "./stream-wire.ts";

/** The server's answer to `register`, as far as it is read. */
export interface RegisteredMessage {
  clockOffMs?: string;
  definitionConflicts?: string[];
  leaseMs?: number;
  serverVersion?: string;
  openWaits?: boolean;
}

export interface WorkerStreamOptions {
  transport: Transport;
  /** Fields of the `register` message. */
  registration: object;
  /** The server knows the worker; what it says from now on left it later than `askedAt`. */
  onRegistered: (socket: StreamSocket, askedAt: Stamp, registered: RegisteredMessage) => void;
  onMessage: (message: Record<string, unknown>, socket: StreamSocket) => void;
  /** The stream ended, whether the server knew the worker or not. Undefined for an end without an error. */
  onEnd: (error: SvcError | undefined, socket: StreamSocket) => void;
}

const path = "/svc.v1.WorkerService/Connect";
/** For the answer to `register`. */
const openTimeoutMs = 15_000;

const cutError = (): SvcError => new SvcError("unreachable", "the stream was cut", { retryable: true });

/** Opens a stream and registers the worker on it. Resolves when the server has answered; throws SvcError. */
async function openWorkerStream(options: WorkerStreamOptions): Promise<void> {
  const { transport, registration, onRegistered, onMessage, onEnd } = options;
  const headers = await transport.headers();
  const { url } = transport;
  const askedAt = stamp();
  let own: StreamSocket | undefined;
  await new Promise<void>((resolve, reject) => {
    const late = setTimeout(() => {
      transport.lost?.(url, true);
      own?.destroy();
      reject(new SvcError("timeout", "the stream was not answered in time", { retryable: true }));
    }, openTimeoutMs);
    const opening = openStreamSocket({
      ...{ url, path, headers },
      onMessage(message) {
        // That server goes: the next stream is opened at another.
        if (message.shutdown) transport.lost?.(url, true);
        if (!message.registered) return onMessage(message, own!);
        clearTimeout(late);
        onRegistered(own!, askedAt, message.registered);
        resolve();
      },
      onEnd(error) {
        clearTimeout(late);
        transport.lost?.(url);
        reject(error ?? cutError());
        if (own) onEnd(error, own);
      },
    });
    opening.then((opened) => {
      own = opened;
      own.send({ register: { ...registration, clockMs: String(Date.now()) } });
    }, reject);
  });
}

export interface StreamCourierOptions extends CourierOptions {
  workerId: string;
  /** Takes by how many milliseconds this machine's clock is ahead of the server's. */
  tellClock: (offMs: number | undefined) => void;
  /** Takes the version of the server. */
  tellVersion: (version: string | undefined) => void;
  /** Takes how long the leases of this worker last, from servers that tell it. */
  onLease: (leaseMs: number | undefined) => void;
  onTakesWaits: (takes: boolean) => void;
  /** The server does not know yet which jobs this worker still holds. */
  onReopened: () => void;
  /** Takes the functions of which another worker serves another definition. */
  tellConflicts: (functionIds: readonly string[] | undefined) => void;
  /** The server refused the worker, as it does not know this function of it: registers the function. */
  onUnknown: (functionId: string) => Promise<void>;
  /** Fields of the `register` message besides the id. */
  registration: () => Promise<object>;
  /** The server ended a run that this worker works on. */
  onCancel: (jobId: string, reason: SvcError) => void;
}

/** How long a stream stays open after the worker has stopped, for what was written last to leave. */
const closeDelayMs = 1_000;

/** In the message of a server that refuses a worker for a function. */
const unknownFunction = /^function_ids: function (\S+) is not registered/;

const isDenial = ({ status }: SvcError) => status === 401 || status === 403;

/** Carries reports and jobs over one stream. If it breaks, another opens and unanswered ones are resent. */
export class StreamCourier implements Courier {
  readonly #options: StreamCourierOptions;
  readonly #reports = new StreamReports();
  readonly #refreshes = new LeaseRefreshes();
  readonly #reopening = createReopening();
  readonly #halt = new AbortController();
  /** The stream on which the server knows this worker. */
  #socket: StreamSocket | undefined;
  #opening: Promise<void> | undefined;
  #isReopening = false;
  #isDraining = false;
  #stopped: SvcError | undefined;
  /** When the last answered message was sent: what the server sends now has left it later than that. */
  #knownAt: Stamp = stamp();

  constructor(options: StreamCourierOptions) {
    this.#options = options;
  }

  /** Resolves once the server knows this worker, on the stream that is open then. */
  open(): Promise<void> {
    this.#opening ??= this.#connectKnown().finally(() => {
      this.#opening = undefined;
    });
    return this.#opening;
  }

  /** Renews the leases of these jobs, and gives those that are no longer this worker's. Throws SvcError. */
  async heartbeat(jobIds: readonly string[], timeoutMs: number): Promise<Set<string>> {
    const { workerId, log } = this.#options;
    const socket = this.#socket;
    if (!socket) throw this.#stopped ?? cutError();
    const onLate = () => {
      log.warn("a heartbeat was not answered; cutting the stream");
      socket.destroy();
    };
    return this.#refreshes.ask(socket, workerId, jobIds, {
      ...{ timeoutMs, onLate },
      reportedBytes: () => this.#reports.bytes(),
    });
  }

  send(report: Report): Sending {
    return this.#reports.send(report);
  }

  /** The server sends jobs unasked, as long as this worker has room. */
  start(): void {}
  nudge(): void {}

  drain(): void {
    this.#isDraining = true;
  }

  stop(reason: SvcError): void {
    this.#stopped = reason;
    this.#halt.abort();
    const last = this.#socket;
    this.#socket = undefined;
    last?.hangUp();
    // The server ends the stream when it has read what was written last.
    const cut = setTimeout(() => last?.destroy(), closeDelayMs);
    (cut as { unref?: () => void }).unref?.();
    this.#reports.close(reason);
    this.#refreshes.rejectAll(reason);
  }

  /** A server that has lost its functions names the first one that it does not know. */
  async #connectKnown(): Promise<void> {
    const registered = new Set<string>();
    for (;;)
      try {
        return await this.#connect();
      } catch (error) {
        const functionId = unknownFunction.exec((error as SvcError).message)?.[1];
        if (this.#stopped || functionId === undefined || registered.has(functionId)) throw error;
        registered.add(functionId);
        await this.#options.onUnknown(functionId);
      }
  }

  async #connect(): Promise<void> {
    const { transport, workerId, registration, asking, held } = this.#options;
    return openWorkerStream({
      transport,
      registration: {
        ...{ workerId, ...(await registration()) },
        ...{ leaseMs: asking.lease_ms, instance: asking.instance, held: held() },
      },
      onRegistered: (
        socket,
        askedAt,
        { clockOffMs, definitionConflicts, leaseMs, serverVersion, openWaits },
      ) => {
        this.#options.onLease(leaseMs);
        this.#options.onTakesWaits(openWaits === true);
        this.#options.tellClock(Number(clockOffMs ?? 0));
        this.#options.tellVersion(serverVersion);
        this.#options.tellConflicts(definitionConflicts);
        if (this.#stopped) return socket.destroy();
        this.#knownAt = askedAt;
        this.#reopening.opened();
        this.#socket = socket;
        this.#reports.attach(socket);
        this.#options.onReopened();
      },
      onMessage: (message, socket) => this.#onMessage(message, socket),
      onEnd: (error, socket) => {
        if (this.#socket === socket) this.#lose(error);
      },
    });
  }

  #onMessage(message: Record<string, unknown>, socket: StreamSocket): void {
    if (message.job) this.#takeJob(message.job as JobMessage, socket);
    else if (message.reported) this.#reports.answered(message.reported as ReportedMessage);
    else if (message.leaseRefresh) {
      const refresh = message.leaseRefresh as LeaseRefreshMessage;
      this.#options.tellConflicts(refresh.definitionConflicts);
      this.#options.onTakesWaits(refresh.openWaits === true);
      this.#knownAt = this.#refreshes.answered(refresh, this.#reports.jobIds()) ?? this.#knownAt;
    } else if (message.cancel) {
      const { jobId = "", reason = "" } = message.cancel as { jobId?: string; reason?: string };
      const why = new SvcError("RUN_NOT_RUNNING", reason || "the run was cancelled", { status: 409 });
      this.#options.onCancel(jobId, why);
    } else if (message.shutdown) this.#leave(socket);
  }

  #takeJob(message: JobMessage, socket: StreamSocket): void {
    const assignment = assignmentOf(message);
    const fence = {
      jobId: assignment.job_id,
      runId: assignment.run_id,
      executionSeq: message.executionSeq ?? "0",
      leaseToken: assignment.lease_token,
    };
    if (this.#isDraining || this.#stopped)
      socket.send({ jobNack: { ...fence, reason: "JOB_NACK_REASON_DRAINING" } });
    else if (this.#options.room() <= 0)
      socket.send({ jobNack: { ...fence, reason: "JOB_NACK_REASON_AT_CAPACITY" } });
    else {
      socket.send({ jobAck: fence });
      this.#options.onJobs([assignment], this.#knownAt);
    }
  }

  /** The server shuts down: it still answers what it was sent, and the next stream finds another server. */
  #leave(socket: StreamSocket): void {
    this.#options.log.info("the server is going; opening a stream elsewhere");
    socket.hangUp();
    if (this.#socket === socket) this.#lose(undefined);
  }

  #lose(error: SvcError | undefined): void {
    const { onDenied, log } = this.#options;
    this.#socket = undefined;
    this.#reports.detach();
    if (error) this.#reports.ended(error);
    this.#refreshes.rejectAll(error ?? cutError());
    if (this.#stopped) return;
    this.#options.onBroken();
    if (error && isDenial(error)) {
      onDenied(error);
      return;
    }
    if (error) log.warn("the stream has ended; opening another", { reason: error.message });
    void this.#reopen();
  }

  async #reopen(): Promise<void> {
    if (this.#isReopening) return;
    this.#isReopening = true;
    const { onDenied, log } = this.#options;
    try {
      while (!this.#stopped && !this.#socket) {
        const delayMs = this.#reopening.delayMs();
        if (delayMs > 0) await pause(delayMs, this.#halt.signal);
        if (this.#stopped) return;
        await this.open().catch((error: SvcError) => {
          if (isDenial(error)) onDenied(error);
          else log.debug("no stream yet", { reason: error.message });
        });
      }
    } finally {
      this.#isReopening = false;
    }
  }
}
