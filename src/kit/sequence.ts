import { invalid } from "./fault.ts";

/** What a write is answered, and what a read sends that must not miss it. */
export const sequenceHeader = "X-Svc-Sequence";
export const minSequenceHeader = "X-Svc-Min-Sequence";
/** The same in the query of a request, where headers cannot be set. */
export const minSequenceQuery = "minSequence";

/**
 * An environment has two logs with positions of their own; one epoch is of both. `events` serves the topics
 * of names and entities, `topics` what developers publish.
 */
export type LogName = "events" | "topics";

/** A place in one of an environment's logs. */
export interface Sequence {
  log: LogName;
  epoch: number;
  position: number;
}

/** `{epoch}.{position}`; for the log of topics `.topics` follows, as the two logs cannot be compared. */
export const sequenceText = (log: LogName, epoch: number, position: number): string =>
  log === "events" ? `${epoch}.${position}` : `${epoch}.${position}.topics`;

/** Throws `invalid_argument` that names the field. */
export function readSequence(field: string, text: string): Sequence {
  const [, epochText, positionText, topics] = /^(\d{1,16})\.(\d{1,16})(\.topics)?$/.exec(text) ?? [];
  const [epoch, position] = [Number(epochText), Number(positionText)];
  if (!Number.isSafeInteger(epoch) || !Number.isSafeInteger(position))
    throw invalid(field, `must be what ${sequenceHeader} answered: {epoch}.{position}`);
  return { log: topics === undefined ? "events" : "topics", epoch, position };
}

/** The last of several writes to one log; undefined where none has a place any more. */
export function lastPosition(written: readonly { position: number | undefined }[]): number | undefined {
  let last: number | undefined;
  for (const { position } of written)
    if (position !== undefined && (last === undefined || position > last)) last = position;
  return last;
}

/** A projection that a call reads. */
export interface ProjectionRead {
  name: string;
  /** Left out or empty: all of it. */
  partition?: string | undefined;
}

/** The store's log, or the projections that are folded from it. */
export type ReadFirst = "log" | readonly ProjectionRead[];

/**
 * What must have reached the position of `X-Svc-Min-Sequence` before a call begins: the store's log; this
 * node's feed of it, which may lag; or what the input names.
 */
export type WaitsFor =
  | "log"
  | "feed"
  | ((input: never, environmentId: string) => ReadFirst | Promise<ReadFirst>);

/** For operations whose input names the one projection that they read. */
export const namedProjection = ({ name, partition }: ProjectionRead): ProjectionRead[] => [
  { name, partition },
];
