import type { ReportedError } from "../wire/errors.ts";
import { jsonToSend } from "../wire/payload.ts";
import type { Yield } from "../wire/wire.ts";

export interface TestEvent {
  event: string;
  data: unknown;
  /** Undefined: it comes whenever it is waited for. */
  atMs: number | undefined;
  taken: boolean;
}

type WaitFilter = Extract<Yield, { type: "wait_for_event" }>["event_filter"];

const isPath = /^[\p{L}\p{N}_$-]+(?:\.[\p{L}\p{N}_$-]+)*$/u;
const ownPath = (path: string): string => path.replace(/^(?:\$\.|event\.)?data\.(?=.)|^\$\.(?=.)/, "");

/** The value at a path inside data; `data.`, `event.data.` and `$.data.` in front are left out. */
export function valueAt(data: unknown, path: string): unknown {
  let value = data;
  for (const name of ownPath(path).split(".")) {
    if (typeof value !== "object" || value === null || !Object.hasOwn(value, name)) return undefined;
    value = (value as Record<string, unknown>)[name];
  }
  return value;
}

/** Equal values have equal texts, whatever the order of their keys. */
const textOf = (value: unknown) =>
  JSON.stringify(value, (_, one) =>
    typeof one !== "object" || one === null || Array.isArray(one)
      ? one
      : Object.fromEntries(Object.entries(one).sort(([a], [b]) => (a < b ? -1 : 1))),
  );

/** Of waits that compare with what the run's own event lacks: the server fails the run by it. */
export function unresolvedIn(waits: readonly Yield[], trigger: unknown): ReportedError | undefined {
  const filters = waits.flatMap((wait): Pick<WaitFilter, "match" | "match_value">[] => {
    if (wait.type === "wait_for_event") return [wait.event_filter];
    return wait.type === "wait_for_events" ? wait.conditions.filter((one) => "event" in one) : [];
  });
  for (const { match, match_value } of filters)
    if (match !== undefined && isPath.test(match) && match_value === undefined)
      if (valueAt(trigger, match) === undefined)
        return {
          message: `wait_for_event: the triggering event has nothing at data.${ownPath(match)}`,
          ...{ code: "WAIT_MATCH_UNRESOLVED", retryable: false },
        };
  return undefined;
}

/**
 * The first event that ends the wait, by the server's rules: equal values at a path, or a literal. CEL is the
 * server's business; a wait with an expression takes the next event of its name.
 */
export function findDelivery(
  deliveries: readonly TestEvent[],
  filter: WaitFilter,
  { nowMs, untilMs, trigger }: { nowMs: number; untilMs: number; trigger: unknown },
): TestEvent | undefined {
  const { match, match_value } = filter;
  const fits = ({ data }: TestEvent): boolean => {
    if (match === undefined || !isPath.test(match)) return true;
    const expected = match_value === undefined ? valueAt(trigger, match) : match_value;
    return expected !== undefined && textOf(valueAt(data, match)) === textOf(expected);
  };
  const atOf = ({ atMs = nowMs }: TestEvent): number => atMs;
  // As on the server, a wait sees only what is emitted after it began.
  return deliveries
    .filter((one) => !one.taken && one.event === filter.event && atOf(one) >= nowMs && atOf(one) <= untilMs)
    .sort((a, b) => atOf(a) - atOf(b))
    .find(fits);
}

/** What is left of a value that was stored as JSON and read again. */
export const asJson = (value: unknown): unknown => JSON.parse(jsonToSend(value, "data") ?? "null");
