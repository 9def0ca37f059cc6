import { Fault } from "../../../kit/fault.ts";
import type { Definitions, FunctionDefinition } from "./definition.ts";

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
