import { allThingsOf, namesOfEvent } from "../../../gate/things.ts";
import { matchesPattern, requireEventName } from "../../../kit/event-names.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import type { Thing } from "../../../kit/operation.ts";
import {
  partitionKeyBytesMax,
  partitionPathBytesMax,
  projectionBatchDefault,
  projectionBatchMax,
  projectionEventsMax,
  projectionNameBytesMax,
  runnerIdBytesMax,
} from "./limits.ts";

export const projectionModes = ["managed", "external", "sql"] as const;
export type ProjectionMode = (typeof projectionModes)[number];

/** Those that a runner registers; the server folds the others itself. */
const runnerModes: readonly string[] = ["managed", "external"];

export const projectionStatuses = ["running", "paused", "rebuilding", "error"] as const;
export type ProjectionStatus = (typeof projectionStatuses)[number];

/** The partition of events without a value at the path, and of projections without a path. */
export const globalPartition = "__global__";

/** What a runner registers, checked. */
export type ProjectionDefinition = ReturnType<typeof definitionOf>;

export interface DefinitionInput {
  name: string;
  events: readonly string[];
  mode?: string | undefined;
  partitionKey?: string | undefined;
  version?: number | undefined;
  recording?: boolean | undefined;
}

const shown = (text: string) => JSON.stringify(text.slice(0, projectionNameBytesMax).toWellFormed());

export const unknownProjection = (name: string): Fault =>
  new Fault("not_found", `projection not found: ${shown(name)}`);

/** No row has a name or an id that no database keeps as it is. */
export const isStorable = (text: string): boolean => text.isWellFormed() && !text.includes("\0");

/** Names stand in topics of frames and in paths of REST. */
export function requireProjectionName(field: string, name: string): string {
  requireEventName(field, name);
  if (Buffer.byteLength(name) > projectionNameBytesMax)
    throw invalid(field, `must be at most ${projectionNameBytesMax} bytes`);
  return name;
}

/** An event name, or a pattern: `*` is one segment, a last `>` is one or more. */
function requireEventPattern(field: string, pattern: string): void {
  const tokens = pattern.split(".");
  const isWild = (token: string, at: number) => token === "*" || (token === ">" && at === tokens.length - 1);
  const plain = tokens.map((token, at) => (isWild(token, at) ? "x" : token)).join(".");
  if (/[*>]/.test(plain))
    throw invalid(field, "must use * for one whole segment, or > for the last segments");
  requireEventName(field, plain);
}

export function partitionPathOf(given: string | undefined): string {
  const path = given ?? "";
  if (path === "") return path;
  if (Buffer.byteLength(path) > partitionPathBytesMax)
    throw invalid("partition_key", `must be at most ${partitionPathBytesMax} bytes`);
  if (!path.isWellFormed() || /[\s\p{Cc}]/u.test(path) || path.split(".").includes(""))
    throw invalid("partition_key", "must be a path inside the event, such as $.data.customer.id");
  return path;
}

/** Throws an `invalid_argument` that names the field. */
export function definitionOf(input: DefinitionInput) {
  const { events, version = 0 } = input;
  const mode = input.mode || "managed";
  if (!isMode(mode) || !runnerModes.includes(mode))
    throw invalid("mode", `unknown mode ${shown(mode)} (one of ${runnerModes.join(", ")})`);
  if (events.length === 0) throw invalid("events", "must name at least one event");
  if (events.length > projectionEventsMax)
    throw invalid("events", `must name at most ${projectionEventsMax} events`);
  for (const [at, pattern] of events.entries()) requireEventPattern(`events[${at}]`, pattern);
  if (version < 0) throw invalid("version", "must not be negative");
  if (input.recording === true && mode !== "managed")
    throw invalid("recording", "only a managed projection has states to keep");
  return {
    name: requireProjectionName("name", input.name),
    mode,
    /** Event names, or patterns of them. */
    events: [...new Set(events)],
    /** Empty: one partition. */
    partitionPath: partitionPathOf(input.partitionKey),
    version: version === 0 ? 1 : version,
    /** Its states are kept as they were. */
    isRecording: input.recording === true,
  };
}

const isMode = (word: string): word is ProjectionMode => projectionModes.some((mode) => mode === word);

/** Of a filter; `active` is what clients call `running`, and empty is none. */
export function statusOf(word: string | undefined): ProjectionStatus | undefined {
  if (!word) return undefined;
  const wanted = word === "active" ? "running" : word;
  const found = projectionStatuses.find((status) => status === wanted);
  if (!found)
    throw invalid("status", `unknown status ${shown(word)} (one of ${projectionStatuses.join(", ")})`);
  return found;
}

export function modeOf(word: string | undefined): ProjectionMode | undefined {
  if (!word) return undefined;
  if (!isMode(word))
    throw invalid("mode", `unknown mode ${shown(word)} (one of ${projectionModes.join(", ")})`);
  return word;
}

/** The partition that a caller names; empty means the global one. */
export function partitionOf(field: string, given: string | undefined): string {
  const partition = given || globalPartition;
  if (Buffer.byteLength(partition) > partitionKeyBytesMax)
    throw invalid(field, `must be at most ${partitionKeyBytesMax} bytes`);
  if (!partition.isWellFormed() || partition.includes("\0"))
    throw invalid(field, "must be well-formed Unicode without zero bytes");
  return partition;
}

/** A position that a caller sends. */
export function positionOf(field: string, seq: number): number {
  if (!Number.isSafeInteger(seq) || seq < 0) throw invalid(field, "must be a position, from 0");
  return seq;
}

const firstTime = Date.parse("0001-01-01T00:00:00Z");
const lastTime = Date.parse("9999-12-31T23:59:59.999Z");

/** A time that every protocol can carry back. */
export function timeOf(field: string, at: number | undefined): number | null {
  if (at === undefined) return null;
  if (!Number.isSafeInteger(at) || at < firstTime || at > lastTime)
    throw invalid(field, "must be from year 1 to year 9999");
  return at;
}

export function eventPositionOf(field: string, seq: number): number {
  if (positionOf(field, seq) === 0) throw invalid(field, "must be the position of an event, from 1");
  return seq;
}

/** Which events belong to a projection. */
export type NameMatcher = ReturnType<typeof eventNamesOf>;

export function eventNamesOf(events: readonly string[]) {
  const patterns = events.filter((one) => /[*>]/.test(one));
  const names = events.filter((one) => !/[*>]/.test(one));
  const literal = new Set(names);
  return {
    /** Literal names. */
    names,
    /** What names that a pattern matches begin with; an empty text stands for all names. */
    prefixes: [...new Set(patterns.map((pattern) => pattern.slice(0, pattern.search(/[*>]/))))],
    matches: (name: string) => literal.has(name) || patterns.some((pattern) => matchesPattern(pattern, name)),
  };
}

/** What a call that brings a projection's events is about: policies may keep these from the caller. */
export const projectionThings = (name: string, events: readonly string[]): (string | Thing)[] => [
  name,
  ...events
    .slice(0, projectionEventsMax)
    .flatMap((event) => allThingsOf("event", ...namesOfEvent(event.replace(/>$/, "*")))),
  // An event of any name may belong to any stream.
  ...(events.length > 0 ? allThingsOf("stream") : []),
];

export function batchSizeOf(batchSize: number): number {
  if (batchSize < 0) throw invalid("batch_size", "must not be negative");
  return batchSize === 0 ? projectionBatchDefault : Math.min(batchSize, projectionBatchMax);
}

/** The generation that is folded beside the one that is read; 0 for none. */
export const buildingOf = (held: { generation: number; generations: { generation: number }[] }): number =>
  held.generations.find(({ generation }) => generation > held.generation)?.generation ?? 0;

/** A runner as it names itself, or as it is known by its credential and address. */
export interface Runner {
  holder: string;
  /** It has a name, by which it is distinct from others and can get its fence. */
  isNamed: boolean;
  /** Zero where it sends none. */
  fence: number;
  /** Zero: the generation that is read. */
  generation: number;
}

export interface RunnerInput {
  runnerId: string;
  fence: number;
  generation: number;
}

export function runnerOf(
  { runnerId, fence, generation }: RunnerInput,
  caller: { id: string; address: string },
): Runner {
  if (Buffer.byteLength(runnerId) > runnerIdBytesMax || !runnerId.isWellFormed() || /\p{Cc}/u.test(runnerId))
    throw invalid("runner_id", `must be at most ${runnerIdBytesMax} bytes without control characters`);
  if (fence < 0) throw invalid("fence", "must not be negative");
  if (generation < 0) throw invalid("generation", "must not be negative");
  const isNamed = runnerId !== "";
  const holder = isNamed ? `runner:${runnerId}` : `caller:${caller.id}@${caller.address}`;
  return { holder, isNamed, fence, generation };
}

/** What may be done to a projection, and its status afterwards. A move to where it is changes nothing. */
export const moves = {
  pause: { from: ["running", "error"], to: "paused" },
  resume: { from: ["paused", "error"], to: "running" },
  rebuild: { from: ["running", "error"], to: "rebuilding" },
} as const satisfies Record<string, { from: readonly ProjectionStatus[]; to: ProjectionStatus }>;

export const wrongStatus = (verb: keyof typeof moves, name: string, status: ProjectionStatus): Fault =>
  new Fault(
    "failed_precondition",
    `cannot ${verb} projection ${shown(name)}: it is ${status} (must be ${moves[verb].from.join(" or ")})`,
  );
