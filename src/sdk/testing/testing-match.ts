import type { Yield } from "../wire/wire.ts";

export interface TestEvent {
  event: string;
  data: unknown;
  /** Undefined: it comes whenever it is waited for. */
  atMs: number | undefined;
  taken: boolean;
}

type WaitFilter = Extract<Yield, { type: "wait_for_event" }>["event_filter"];

/** The value at a path inside data; `data.`, `event.data.` and `$.data.` in front are left out. */
export function valueAt(data: unknown, path: string): unknown {
  const own = path.replace(/^(?:\$\.|event\.)?data\.(?=.)|^\$\.(?=.)/, "");
  let value = data;
  for (const name of own.split(".")) value = (value as Record<string, unknown> | null | undefined)?.[name];
  return value;
}

const isPath = /^[\w$.-]+$/;

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
    return expected !== undefined && JSON.stringify(valueAt(data, match)) === JSON.stringify(expected);
  };
  const atOf = ({ atMs = nowMs }: TestEvent): number => atMs;
  // As on the server, a wait sees only what is emitted after it began.
  return deliveries
    .filter((one) => !one.taken && one.event === filter.event && atOf(one) >= nowMs && atOf(one) <= untilMs)
    .sort((a, b) => atOf(a) - atOf(b))
    .find(fits);
}
