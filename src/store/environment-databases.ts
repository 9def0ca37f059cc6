import { Fault, invalid, tryAgain } from "../kit/fault.ts";

/** A value of an answer: as JSON has it; an integer or a decimal that no number holds exactly is its text. */
export type Cell = string | number | boolean | null | JsonText;

/** A JSON document, as its text. */
export class JsonText {
  readonly text: string;

  constructor(text: string) {
    this.text = text;
  }
}

/** On PostgreSQL, in an environment's schema: counts what a second aggregate gathers; fails past bounds. */
export const gatheredName = "svc_gathered";
/** Its argument, or an error where that is too large. */
export const boundedName = "svc_bounded";

/** One query, in the dialect of the store, that was admitted before. */
export interface QueryAsk {
  text: string;
  values: readonly string[];
  isExplain: boolean;
  rowsMax: number;
  bytesMax: number;
  timeoutMs: number;
  signal: AbortSignal;
}

export interface QueryAnswer {
  columns: string[];
  rows: Cell[][];
  /** Rows were left out: there are more than `rowsMax`, or more than `bytesMax` bytes of them. */
  isTruncated: boolean;
}

/** The table of one fold of a SQL projection. */
export interface FoldTable {
  environmentId: string;
  /** What queries call it: `proj_orders`. */
  name: string;
  generation: number;
}

/**
 * How a table is made and what events do to it, in the dialect of the store. `tableMark` stands for the name
 * of the table in it, and `parameterMark(n)` for a parameter.
 */
export interface FoldDefinition {
  /** What stands in the parentheses of CREATE TABLE. */
  columns: string;
  handlers: readonly FoldHandler[];
  /** Another one for other handlers. */
  version: string;
}

export interface FoldHandler {
  text: string;
  /** How many parameters it takes, numbered from 1. */
  parameters: number;
}

/** No admitted text has control characters. */
export const tableMark = "\u0001table\u0001";
export const parameterMark = (number: number): string => `\u0001${number}\u0001`;

export type StepValue = string | number | boolean | null;

export interface FoldStep {
  /** Which handler of the definition. */
  handler: number;
  position: number;
  values: readonly StepValue[];
}

/** Events that are folded in one transaction, together with the cursor of the table. */
export interface FoldSlice {
  /** Where the cursor is before: another node may have folded meanwhile. */
  from: number;
  to: number;
  steps: readonly FoldStep[];
}

export type FoldOutcome =
  | { did: "folded" }
  /** The cursor is elsewhere. */
  | { did: "nothing"; position: number }
  /** The first step that the database refuses. Nothing of the slice is kept. */
  | { did: "failed"; position: number; message: string };

/**
 * What every environment has for itself in the database: tables of its SQL projections, and views of its
 * runs, steps, events and functions. Whatever an environment runs there reaches nothing of another one.
 */
export interface EnvironmentDatabases {
  /** Makes the database of the environment where it has none. */
  query(environmentId: string, ask: QueryAsk): Promise<QueryAnswer>;
  /** Throws a Fault with what the database says of a definition; nothing is left behind. */
  check(table: FoldTable, definition: FoldDefinition): Promise<void>;
  /**
   * Where the cursor of the table is. One that is missing is made, empty, with its cursor at `position`;
   * undefined where it is missing and no position is given.
   */
  ensure(
    table: FoldTable,
    definition: FoldDefinition,
    position: number | undefined,
  ): Promise<number | undefined>;
  /** Queries read this generation from now on. */
  show(table: FoldTable): Promise<void>;
  fold(table: FoldTable, slice: FoldSlice, definition: FoldDefinition): Promise<FoldOutcome>;
  /** A table that is not there is no trouble. */
  drop(table: FoldTable): Promise<void>;
  /** Drops what belongs to environments that are no more. Answers how many databases went. */
  sweep(): Promise<number>;
  close(): Promise<void>;
}

/** Seats of a node for queries, and for folds; how long one that idles is kept. */
export const seatsMax = 8;
/** Of one environment, with the one that is kept for quick queries. */
export const seatsOfOneMax = 4;
/** Callers of one environment that wait for a seat. */
export const waitingOfOneMax = 32;
export const seatIdleMs = 5_000;
/** One slice of a fold. */
export const foldMsMax = 10_000;
/** One row of an answer, so that a fetch of several fits into the memory of a node. */
export const rowBytesMax = 4 * 1024 * 1024;

export const noSeat = (): Fault =>
  tryAgain("resource_exhausted", "too many queries at once: try again in a moment");
export const tookTooLong = (timeoutMs: number): Fault =>
  new Fault("deadline_exceeded", `timeout_ms: the query took longer than ${timeoutMs} ms`, {
    field: "timeout_ms",
  });
export const tookTooMuch = (what: string): Fault =>
  new Fault("resource_exhausted", `the query needs more than it may have: ${what}`);
export const rowTooLarge = (): Fault =>
  tookTooMuch(`a row of its answer is larger than ${rowBytesMax} bytes`);
export const cutOff = (): Fault => new Fault("unavailable", "the query was given up: its caller has left");

const messageCharsMax = 500;

/** What the author of a text is told of the database's error. */
export const databaseSays = (field: string, message: string): Fault =>
  invalid(field, message.slice(0, messageCharsMax).toWellFormed().replaceAll("\0", " "));
