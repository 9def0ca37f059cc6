import type { CelProgram } from "../../../kit/cel/cel.ts";
import { replayMax } from "./limits.ts";
import { isOfFrames, type Pattern, parsePattern, readFilter, refusal } from "./rules.ts";

/** What a subscriber asks for, on any transport. */
export interface SubscribeInput {
  pattern: string;
  replay?: number | undefined;
  includeMetadata?: boolean | undefined;
  topicOnly?: boolean | undefined;
  /** A CEL expression on `data`, `metadata`, `topic` and `event`. */
  filter?: string | undefined;
  consumerGroup?: string | undefined;
  startAfterSequence?: bigint | undefined;
  /** Whether the first message says where the subscription begins. */
  withStart?: boolean | undefined;
  /** Whether a quiet subscription is told how far it has come. */
  withPositions?: boolean | undefined;
  /** The epoch of the log in which `startAfterSequence` was seen. */
  epoch?: bigint | undefined;
}

/** A checked `SubscribeInput`. */
export interface SubscriptionOptions {
  pattern: Pattern;
  replay: number;
  includeMetadata: boolean;
  topicOnly: boolean;
  filterText: string | undefined;
  filter: CelProgram | undefined;
  startAfter: bigint | undefined;
  /** The consumer group that the subscription is a member of. */
  group: string | undefined;
  withStart: boolean;
  withPositions: boolean;
  epoch: bigint | undefined;
}

/** Throws the refusal that names the option. */
export function readSubscriptionOptions(input: SubscribeInput): SubscriptionOptions {
  const pattern = parsePattern(input.pattern);
  const { replay = 0, startAfterSequence: startAfter, consumerGroup } = input;
  const field = "startAfterSequence";
  if (startAfter !== undefined && replay > 0)
    throw refusal("INVALID_ARGUMENT", `${field} cannot be combined with replay`, { field });
  if (startAfter !== undefined && consumerGroup)
    throw refusal("INVALID_ARGUMENT", `${field} cannot be combined with consumerGroup`, { field });
  if (replay < 0) throw refusal("INVALID_ARGUMENT", "replay: must not be negative", { field: "replay" });
  if (replay > replayMax)
    throw refusal("LIMIT_EXCEEDED", `replay: must be at most ${replayMax}`, { field: "replay" });
  if (consumerGroup && isOfFrames(pattern))
    throw refusal("INVALID_ARGUMENT", "consumerGroup: cannot be combined with a pattern in system.*", {
      field: "consumerGroup",
    });
  return {
    pattern,
    replay,
    includeMetadata: input.includeMetadata ?? false,
    topicOnly: input.topicOnly ?? false,
    filterText: input.filter || undefined,
    filter: readFilter(input.filter),
    startAfter,
    group: consumerGroup || undefined,
    withStart: input.withStart ?? false,
    // Of a group the server keeps the place, and frames have none.
    withPositions: (input.withPositions ?? false) && !consumerGroup && !isOfFrames(pattern),
    epoch: input.epoch,
  };
}
