import type { Caller } from "../kit/caller.ts";
import type { Clock, Instant } from "../kit/clock.ts";
import { Fault, type FaultKind } from "../kit/fault.ts";
import type { Ids } from "../kit/ids.ts";
import type { Log } from "../kit/log.ts";
import type { Call, Operation } from "../kit/operation.ts";
import type { Screen } from "../kit/screen.ts";
import type { LogName, ReadFirst, Sequence } from "../kit/sequence.ts";
import { passedOn } from "../kit/trace.ts";
import { troubleOf } from "./fault-encoding.ts";
import type { UnknownFields } from "./unknown-fields.ts";

export interface Authenticated {
  caller: Caller;
  environmentId: string;
  /** The token, where a session was the credential. */
  session?: string;
}

/**
 * Finds the caller and the environment of a request. Throws `unauthenticated`, and the 400 and 403 of
 * environment selection. The operation decides whether a cookie counts.
 */
export type Authenticate = (request: Request, operation: Pick<Operation, "reads">) => Promise<Authenticated>;

/** Reported for every operation that was called, whatever its outcome; for metrics and audit. */
export interface Observation {
  /** To recognize the request, and for its head; its body must not be read here. */
  request: Request;
  operation: Operation;
  caller: Caller;
  environmentId: string;
  requestId: string;
  outcome: "ok" | FaultKind;
  ms: number;
  /** The fault a refused caller gets. */
  message?: string | undefined;
  /** Which rule refused it: `role`, `credential`, or a policy's id. */
  refusedBy?: string | undefined;
  /** As parsed; undefined when it was refused before. For the audit alone. */
  input?: unknown;
}

/** Called when a request arrives; the function it returns is called with the outcome. */
export type Follow = (request: Request) => (answer: Response | "upgraded" | "failed") => void;

/** A call that lasts after its caller was admitted: a socket, a stream, a held poll. */
export interface OpenCall {
  edge: Edge;
  operation: Operation;
  /** As it was let in. */
  call: RequestCall;
  /** The parsed inputs that deny policies are checked for, as they are now. */
  inputs: () => Iterable<unknown>;
  /** Ends the whole call when `input` is undefined, otherwise this one of its inputs. */
  refuse: (fault: Fault, input: unknown) => void;
}

/** The open calls of a node. */
export interface Reauthorizer {
  /** Watches the call until the returned function is called. */
  add(stand: OpenCall): () => void;
  /** The tick of loop `edge.standing`: checks again that each caller may still do what it does. */
  reauthorizeOnce(): Promise<void>;
  size(): number;
}

export interface SequenceWait {
  timeoutMs: number;
  /** Aborted when no one waits any more. */
  signal: AbortSignal;
  /** The caller's id: no caller may take all places of a node. */
  holder: string;
}

/** Positions of logs, for those who write and for those who read after them. */
export interface Sequences {
  /**
   * The text of `X-Svc-Sequence`. Without a promise once the log's epoch is known here; undefined where it
   * cannot be read: the write stands all the same.
   */
  sequenceAt(
    environmentId: string,
    log: LogName,
    position: number,
  ): string | undefined | Promise<string | undefined>;
  /**
   * Undefined: what is read has reached the position. Otherwise what resolves once it has; that rejects with
   * `failed_precondition` for the position of another epoch, with `unavailable` when the time is over.
   */
  reached(
    environmentId: string,
    least: Sequence,
    reads: "log" | "feed" | (() => ReadFirst | Promise<ReadFirst>),
  ): ((options: SequenceWait) => Promise<void>) | undefined;
}

/** What the edge needs from the other rooms. */
export interface Edge {
  clock: Clock;
  ids: Ids;
  log: Log;
  /** `ins_…`, which every answer names. */
  installation?: string;
  authenticate: Authenticate;
  /** Every caller is admitted (`--dev`), so only this machine's own pages and programs are answered. */
  loopbackOnly?: boolean;
  /** Throws Fault("permission_denied", "Insufficient permissions: …") unless a role grants the action. */
  gate: (call: RequestCall, operation: Operation) => void | Promise<void>;
  /** Throws `resource_exhausted` when this caller sends too many requests. */
  limit?: ((caller: Caller) => void) | undefined;
  /** Re-authorizes open calls from time to time. */
  reauthorizer?: Reauthorizer;
  /** Whether the environment was deleted a moment ago, and calls there are still to be told and ended. */
  isGoing?: (environmentId: string) => Promise<boolean>;
  /** Throws when a deny policy forbids what the parsed input names. */
  guard?: (call: RequestCall, operation: Operation, input: unknown) => void | Promise<void>;
  /** The deny policies that may keep things of a type from the caller; undefined when there are none. */
  screen?: (
    call: RequestCall,
    operation: Operation,
    asked: { action: string; type: string },
  ) => Screen | undefined | Promise<Screen | undefined>;
  sequences?: Sequences;
  observe: (observation: Observation) => void;
  /** What to do with unknown fields; left out, they are ignored. */
  unknownFields?: UnknownFields;
  /**
   * Asked once for each route, named by its pattern: who wants to know when its requests come and are
   * answered.
   */
  follow?: (route: { method: string; path: string; isPublic?: boolean }) => Follow;
  /** Where a request's span stands in its trace; undefined when none is kept. */
  traceOf?: (request: Request) => string | undefined;
}

/** A known caller who may not use this protocol or environment. */
export class RefusedCaller extends Fault {
  readonly caller: Caller;

  constructor(caller: Caller, message: string) {
    super("permission_denied", message);
    this.caller = caller;
  }
}

/** The operation of a call, and what the edge knows of it. */
export interface CallSurroundings {
  operation: Operation;
  screen: Edge["screen"];
  traceOf?: Edge["traceOf"];
}

/** Of a run; other texts in `X-Svc-Run-ID` name none, and would be too long for a key. */
const runIdForm = /^[A-Za-z0-9_-]{1,64}$/;

/** One request on its way: the handler's `Call`. The signal is made when it is first read. */
export class RequestCall implements Call {
  /**
   * Both are what the request was let in with; the gate moves who impersonates an org into that of what is
   * named.
   */
  caller: Caller;
  environmentId: string;
  readonly requestId: string;
  readonly receivedAt: Instant;
  readonly request: Request;
  readonly session: string | undefined;
  /** Which rule refused it: `role`, or a policy's id. */
  refusedBy: string | undefined;
  address = "";
  isSecure = false;
  admitted?: () => void;
  readonly surroundings: CallSurroundings;
  #signal: AbortSignal | undefined;
  #latest: RequestCall | undefined;
  #listeners: (() => void | Promise<void>)[] | undefined;

  constructor(
    request: Request,
    requestId: string,
    receivedAt: Instant,
    who: Authenticated,
    surroundings: CallSurroundings,
  ) {
    this.caller = who.caller;
    this.environmentId = who.environmentId;
    this.session = who.session;
    this.requestId = requestId;
    this.receivedAt = receivedAt;
    this.request = request;
    this.surroundings = surroundings;
  }

  get signal(): AbortSignal {
    this.#signal ??= this.request.signal;
    return this.#signal;
  }

  /** Ends the call earlier than its request: a deadline, a protocol's own cancellation. */
  endWith(signal: AbortSignal): this {
    this.#signal = signal;
    return this;
  }

  screen(action: string, type: string): ReturnType<Call["screen"]> {
    const { screen, operation } = this.surroundings;
    return screen?.(this.#latest ?? this, operation, { action, type });
  }

  onRenewed(listener: () => void | Promise<void>): void {
    this.#listeners ??= [];
    this.#listeners.push(listener);
  }

  /** Takes over the caller of a fresh authentication of the same call. */
  renew(latest: RequestCall): Promise<void> | undefined {
    if (!this.#listeners) return undefined;
    this.#latest = latest;
    return this.#told(this.#listeners);
  }

  async #told(listeners: readonly (() => void | Promise<void>)[]): Promise<void> {
    for (const listener of listeners) {
      const pending = listener();
      if (pending) await pending;
    }
  }

  get method(): string {
    return this.request.method;
  }

  get idempotencyKey(): string | undefined {
    return this.request.headers.get("idempotency-key") ?? undefined;
  }

  get traceparent(): string | undefined {
    const { traceOf } = this.surroundings;
    return traceOf?.(this.request) ?? passedOn(this.request.headers.get("traceparent"));
  }

  get userAgent(): string | undefined {
    return this.request.headers.get("user-agent") ?? undefined;
  }

  get runId(): string | undefined {
    const id = this.request.headers.get("x-svc-run-id");
    return id !== null && runIdForm.test(id) ? id : undefined;
  }
}

/**
 * Turns anything thrown into a fault that a caller may see. Anything but a Fault is a defect: it is logged
 * under an id, and the caller gets only the id.
 */
export function faultOf(
  edge: Edge,
  error: unknown,
  operation: Operation | undefined,
  requestId: string,
): Fault {
  if (error instanceof Fault) return error;
  const trouble = troubleOf(error);
  if (trouble) {
    edge.log.warn("request.trouble", { operation: operation?.name, requestId, error: trouble.cause });
    return trouble;
  }
  const id = edge.ids.next("req");
  edge.log.error("request.defect", { id, operation: operation?.name, requestId, error });
  return new Fault("internal", `internal error (id ${id})`, { cause: error });
}
