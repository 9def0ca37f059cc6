import { requireEventName } from "../../../kit/event-names.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import { openTrie } from "../../../kit/trie.ts";
import type { Definitions, FunctionDefinition } from "./definition.ts";

/** Whether a trigger's event is a pattern: names contain neither `*` nor `>`. */
export const isPattern = (event: string): boolean => /[*>]/.test(event);

/** Throws the fault that names the field unless it is an event's name, or a pattern of such names. */
export function requireTriggerEvent(field: string, event: string): void {
  const segments = event.split(".");
  for (const [at, segment] of segments.entries()) {
    if (segment === ">" && at < segments.length - 1)
      throw invalid(field, "> is allowed only as the last segment");
    if (segment.length > 1 && isPattern(segment))
      throw invalid(field, "* and > must be whole segments, between dots");
  }
  requireEventName(field, segments.map((segment) => (isPattern(segment) ? "_" : segment)).join("."));
}

/**
 * Finds values by the patterns that match an event's name; costs only the patterns with the name's first
 * segments.
 */
export function openPatternIndex<Value>() {
  const trie = openTrie<{ at: number; value: Value }>();
  let count = 0;
  return {
    add: (pattern: string, value: Value) => trie.add(pattern.split("."), { at: count++, value }),
    /** In the order in which they were added. */
    of: (eventName: string) =>
      trie
        .match(eventName.split("."))
        .sort((a, b) => a.at - b.at)
        .map(({ value }) => value),
    isEmpty: () => count === 0,
  };
}

/**
 * Triggers of one event name with an expression: an emit asks all of them, and all of them share what an emit
 * may look at.
 */
export const filteredTriggersMax = 1_000;

/**
 * Throws `resource_exhausted` when an event that the function names would have more triggers to ask than
 * that.
 */
export function requireFewFiltered(known: Definitions, { id, triggers }: FunctionDefinition): void {
  const added = new Map<string, number>();
  for (const { event, expression } of triggers)
    if (event !== undefined && expression !== undefined) added.set(event, (added.get(event) ?? 0) + 1);
  for (const [event, count] of added) {
    const others = known
      .triggersOf(event)
      .filter(({ record, expression }) => expression !== undefined && record.definition.id !== id);
    if (others.length + count > filteredTriggersMax)
      throw new Fault(
        "resource_exhausted",
        `at most ${filteredTriggersMax} triggers with an expression for one event`,
        { field: "triggers" },
      );
  }
}
