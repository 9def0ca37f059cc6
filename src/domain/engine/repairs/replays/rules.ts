import { Fault, invalid } from "../../../../kit/fault.ts";
import type { FunctionRecord, TriggerDefinition } from "../../functions/definition.ts";

/** The action of a repair that starts a function on events of the past. */
export const replayAction = "replay" as const;

/** Which events, as asked for; a number that is 0 and a text that is empty are left out. */
export interface ReplayEvents {
  pattern?: string | undefined;
  filter?: string | undefined;
  fromPosition?: number | undefined;
  toPosition?: number | undefined;
  since?: string | undefined;
  until?: string | undefined;
  again?: boolean | undefined;
}

export interface ReplayInput {
  functionId: string;
  events: ReplayEvents;
  thenLive?: boolean | undefined;
  reason?: string | undefined;
}

/** Positions of a log, both included; `to` below `from` for none. */
export interface ReplayWindow {
  from: number;
  to: number;
}

/** A replay as it is stored. */
export interface ReplayRequest extends ReplayWindow {
  functionId: string;
  /** What events are matched with. */
  triggers: readonly TriggerDefinition[];
  /** Also events that the function has a run of. */
  again: boolean;
  /** The first position that the function's own triggers start. */
  liveFrom?: number;
}

export function requireOneEnd(
  { fromPosition, toPosition, since, until }: ReplayEvents,
  thenLive: boolean,
): void {
  if (fromPosition && since) throw invalid("events.since", "cannot be combined with from_position");
  if (toPosition && until) throw invalid("events.until", "cannot be combined with to_position");
  if (fromPosition && toPosition && toPosition < fromPosition)
    throw invalid("events.to_position", `must be at least from_position, ${fromPosition}`);
  if (thenLive && (toPosition || until))
    throw invalid(
      "then_live",
      "cannot be combined with to_position or until: the window ends where it begins",
    );
}

export function requireReplayable({ definition, status }: FunctionRecord, thenLive: boolean): void {
  const { id, triggers } = definition;
  if (status === "archived")
    throw new Fault("failed_precondition", `function ${id} is archived and takes no runs`);
  if (thenLive && triggers.every(({ event }) => event === undefined))
    throw new Fault("failed_precondition", `function ${id} has no event trigger that could go live`);
}

/** `oldest`: what may be asked for, in the words of the field. */
export const belowFloor = (field: string, floor: number, oldest: string): Fault =>
  new Fault(
    "invalid_argument",
    `out_of_range: ${field}: positions below ${floor} have expired; must be at least ${oldest}`,
    { field, code: "out_of_range" },
  );
