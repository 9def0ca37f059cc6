import { invalid } from "../../../../kit/fault.ts";
import type { FunctionRecord, TriggerDefinition } from "../../functions/definition.ts";
import { requireTriggerEvent, requireTriggerExpression } from "../../functions/rules.ts";
import type { ReplayEvents } from "./rules.ts";

/** What events are matched with: the pattern and the filter, or the function's own triggers. */
export function triggersOf(
  { definition: { id, triggers } }: FunctionRecord,
  { pattern, filter }: ReplayEvents,
): TriggerDefinition[] {
  if (filter) requireTriggerExpression("events.filter", filter);
  if (pattern) requireTriggerEvent("events.pattern", pattern);
  if (pattern) return [{ event: pattern, ...(filter && { expression: filter }) }];
  const own = triggers.filter(({ event }) => event !== undefined);
  if (own.length === 0) throw invalid("events.pattern", `is required: function ${id} has no event trigger`);
  if (!filter) return own;
  return own.map(({ event, expression }) => {
    const both = expression === undefined ? filter : `(${expression}) && (${filter})`;
    requireTriggerExpression("events.filter", both);
    return { ...(event !== undefined && { event }), expression: both };
  });
}
