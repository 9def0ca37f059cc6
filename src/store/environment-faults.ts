import { Fault, invalid, tryAgain } from "../kit/fault.ts";

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
