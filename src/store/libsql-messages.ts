import type { Cell, StepValue } from "./environment-databases.ts";

/** What the server asks of a process that works for one environment; one at a time. */
export type ProgramAsk =
  | ({ ask: "read"; heapBytes: number } & WirePlaces)
  | { ask: "write"; file: string; heapBytes: number }
  | ({ ask: "query" } & WireQuery)
  | ({ ask: "check" | "ensure" | "show" | "drop" } & WireTable)
  | {
      ask: "fold";
      table: string;
      handlers: readonly WireHandler[];
      from: number;
      to: number;
      steps: WireStep[];
    };

/** What a reader reads. The names of the two databases are random and secret. */
export interface WirePlaces {
  storeFile: string;
  storeName: string;
  file: string;
  ownName: string;
  environmentId: string;
}

/** A table of one generation, and what queries call it. */
export interface WireTable {
  table: string;
  name: string;
  columns: string;
  handlers: readonly WireHandler[];
  /** Left out: a table that is missing is not made. */
  position?: number;
}

export interface WireQuery {
  text: string;
  values: readonly string[];
  isExplain: boolean;
  rowsMax: number;
  bytesMax: number;
  rowBytesMax: number;
}

export interface WireHandler {
  text: string;
  parameters: number;
}

/** Handler, position, values. */
export type WireStep = [number, number, ...StepValue[]];

export type ProgramAnswer =
  | { answer: "rows"; rows: Cell[][] }
  | { answer: "done"; columns?: string[]; isTruncated?: boolean; isSpent?: boolean; position?: number }
  | { answer: "failed"; position: number; message: string }
  | { answer: "refused"; why: "text" | "too much" | "not allowed" | "row"; message: string }
  | { answer: "defect"; message: string };
