import type { FunctionDefinition } from "../wire/types.ts";

export interface HandlerEvent<Data = unknown, Name extends string = string> {
  id: string;
  name: Name;
  data: Data;
  /** RFC 3339. */
  timestamp: string;
  version: number;
  /** `api`, `cron`, … */
  source?: string;
  idempotencyKey?: string;
  metadata: Record<string, unknown> | null;
}

/** What a function knows of its events. */
export interface EventReader {
  /** The version that is emitted; undefined when no rule names one. */
  version(name: string): number | undefined;
  /** The data as its schema has it. NonRetryableError with code VALIDATION_ERROR for what does not fit. */
  check(name: string, data: unknown): Promise<unknown>;
  /** An event as a handler is to see it: brought up to the present version, and checked. */
  read<Event extends HandlerEvent>(event: Event): Promise<Event>;
}

export interface SvcFunction<Input = unknown, Output = unknown> {
  readonly id: string;
  readonly definition: FunctionDefinition;
  readonly handler: (context: never) => unknown;
  /** Called once when a run has failed for good and is undone. */
  readonly onFailure?: (context: never) => unknown;
  /** How its events are checked and brought up to date. */
  readonly events?: EventReader;
  /** Never there; carries the types of its event's data and of its result. */
  readonly types?: { readonly input: Input; readonly output: Output };
}

/** The first id that two of them have. */
export const repeatedId = (functions: readonly Pick<SvcFunction, "id">[]): string | undefined =>
  functions.find(({ id }, at) => functions.findIndex((one) => one.id === id) < at)?.id;
