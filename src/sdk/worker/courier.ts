import type { SvcError } from "../wire/errors.ts";
import type { Transport } from "../wire/transport.ts";
import type { Logger } from "../wire/types.ts";
import type { Assignment, Report } from "../wire/wire.ts";
import type { LeaseAsking, Stamp } from "./lease.ts";

export interface Sending {
  /** Resolves when the server has stored it, rejects with SvcError when it never will. */
  readonly done: Promise<"stored" | "withdrawn">;
  /** Takes it back, if it has not left yet. */
  withdraw(): boolean;
}

export interface CourierOptions {
  transport: Transport;
  /** Jobs that could be started now. */
  room: () => number;
  /** What this worker asks of its leases. */
  asking: LeaseAsking;
  /** The jobs that it holds. */
  held: () => readonly string[];
  /** `askedAt` is when these jobs were asked for: their leases began later than that. */
  onJobs: (jobs: Assignment[], askedAt: Stamp) => void;
  /** The server does not accept the key; the courier sends nothing more. */
  onDenied: (error: SvcError) => void;
  /** A held poll, or the stream, ended without an answer: the server may take this process for dead. */
  onBroken: () => void;
  log: Logger;
}

/** Carries the reports of a worker to the server, and jobs to the worker. */
export interface Courier {
  send(report: Report): Sending;
  start(): void;
  /** Asks for jobs again: there is room, and no report is on its way that would ask for them. */
  nudge(): void;
  /** No further jobs are asked for; reports still leave. */
  drain(): void;
  /** Everything ends now; reports that have not left are rejected. */
  stop(reason: SvcError): void;
}
