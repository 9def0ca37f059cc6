import { CelError, type CelProgram, compileCel } from "../../kit/cel.ts";
import { Fault } from "../../kit/fault.ts";
import { replayMax } from "../../kit/limits.ts";
import { type Pattern, parsePattern, refusal } from "./rules.ts";

/** What a subscriber asks for, on any transport. */
export interface SubscribeInput {
  pattern: string;
  replay?: number | undefined;
  includeMetadata?: boolean | undefined;
  topicOnly?: boolean | undefined;
  /** A CEL expression on `data`, `metadata` and `topic`. */
  filter?: string | undefined;
  consumerGroup?: string | undefined;
  startAfterSequence?: bigint | undefined;
  /** To be told, before anything else, where it begins. */
  withStart?: boolean | undefined;
  /** Of the log that `startAfterSequence` was seen in. */
  epoch?: bigint | undefined;
}

/** The same, checked. */
export interface Wanted {
  pattern: Pattern;
  replay: number;
  includeMetadata: boolean;
  topicOnly: boolean;
  filterText: string | undefined;
  filter: CelProgram | undefined;
  startAfter: bigint | undefined;
  withStart: boolean;
  epoch: bigint | undefined;
}

function readFilter(text: string | undefined): CelProgram | undefined {
  if (!text) return undefined;
  try {
    return compileCel(text, { variables: ["data", "metadata", "topic"], result: "bool" });
  } catch (error) {
    if (!(error instanceof CelError)) throw error;
    throw refusal("INVALID_ARGUMENT", `filter: ${error.message}`, { field: "filter" });
  }
}

/** Throws the refusal that names the option. */
export function readWanted(input: SubscribeInput): Wanted {
  const pattern = parsePattern(input.pattern);
  const { replay = 0, startAfterSequence: startAfter, consumerGroup } = input;
  const field = "startAfterSequence";
  if (startAfter !== undefined && replay > 0)
    throw refusal("INVALID_ARGUMENT", `${field} cannot be combined with replay`, { field });
  if (startAfter !== undefined && consumerGroup)
    throw refusal("INVALID_ARGUMENT", `${field} cannot be combined with consumerGroup`, { field });
  if (replay < 0) throw refusal("INVALID_ARGUMENT", "replay: must not be negative", { field: "replay" });
  if (replay > replayMax)
    throw refusal("LIMIT_EXCEEDED", `replay: at most ${replayMax}`, { field: "replay" });
  if (consumerGroup)
    throw new Fault("unimplemented", "consumer groups are not served", { code: "INTERNAL_ERROR" });
  return {
    pattern,
    replay,
    includeMetadata: input.includeMetadata ?? false,
    topicOnly: input.topicOnly ?? false,
    filterText: input.filter || undefined,
    filter: readFilter(input.filter),
    startAfter,
    withStart: input.withStart ?? false,
    epoch: input.epoch,
  };
}
