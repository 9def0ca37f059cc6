import type { Instant } from "../clock.ts";
import { type CronFields, nextLocal, parseCronFields } from "./fields.ts";

export interface CronPlan {
  /** The first slot after the instant; undefined when none is left. */
  next(after: Instant): Instant | undefined;
}

export class CronError extends Error {
  override readonly name = "CronError";
}

/** Of an expression: it is stored, compared and announced as it is. */
export const cronExpressionBytesMax = 512;
/** Expressions whose plans are kept, and time zones. */
const plansKeptMax = 5_000;
const zonesKeptMax = 100;

const zonePrefix = /^(?:CRON_)?TZ=(\S+)(?:\s+|$)/;
const hourMs = 3_600_000;
const dayMs = 24 * hourMs;

const plans = new Map<string, CronPlan>();

/** The plan of an expression; each is read once, as long as there is room. Throws a `CronError`. */
export function parseCron(text: string): CronPlan {
  const known = plans.get(text);
  if (known) return known;
  if (Buffer.byteLength(text) > cronExpressionBytesMax)
    throw new CronError(`has more than ${cronExpressionBytesMax} bytes`);
  const plan = read(text);
  if (plans.size >= plansKeptMax) plans.delete(plans.keys().next().value!);
  plans.set(text, plan);
  return plan;
}

/**
 * Five fields, or six with leading seconds, or `@hourly` and its like; `CRON_TZ=Zone ` or `TZ=Zone ` before
 * them, else UTC.
 *
 * An expression for every hour goes by real time, whatever the clock does. Of any other, each slot of the
 * local clock comes once: one that the clock skips comes as much later as the clock went forward, one that
 * the clock shows twice comes with the first. When days of the month and of the week are both given, either
 * is enough.
 */
function read(text: string): CronPlan {
  const zone = zonePrefix.exec(text)?.[1] ?? "UTC";
  let fields: CronFields;
  let offsetAt: (at: Instant) => number;
  try {
    fields = parseCronFields(text.replace(zonePrefix, "").trim());
    offsetAt = offsetsOf(zone);
  } catch (error) {
    throw new CronError((error as Error).message);
  }
  const next = (after: Instant) =>
    fields.hours.length === 24 ? byRealTime(fields, offsetAt, after) : byLocalTime(fields, offsetAt, after);
  if (next(0) === undefined) throw new CronError("names a date that never comes");
  return { next };
}

type OffsetAt = (at: Instant) => number;

function byRealTime(fields: CronFields, offsetAt: OffsetAt, after: Instant): Instant | undefined {
  let offset = offsetAt(after);
  let local = nextLocal(fields, after + offset);
  let from = after;
  while (local !== undefined) {
    const at = local - offset;
    if (offsetAt(at) === offset) return at;
    // The clock changes before that slot: go on from there by the other offset.
    from = changeBetween(offsetAt, from, at);
    offset = offsetAt(from);
    local = nextLocal(fields, from + offset - 1);
  }
  return undefined;
}

function byLocalTime(fields: CronFields, offsetAt: OffsetAt, after: Instant): Instant | undefined {
  let best: Instant | undefined;
  const offer = (at: Instant) => {
    if (at > after && (best === undefined || at < best)) best = at;
  };
  // Shortly after a change slots of the time before are still to come.
  for (const offset of new Set([offsetAt(after - 3 * hourMs), offsetAt(after)])) {
    let local = nextLocal(fields, after + offset);
    // What the clock shows for the second time has come with the first.
    while (local !== undefined && instantOf(offsetAt, local).at <= after) local = nextLocal(fields, local);
    if (local === undefined) continue;
    const { at, skippedFrom } = instantOf(offsetAt, local);
    offer(at);
    if (skippedFrom === undefined) continue;
    const shown = nextLocal(fields, skippedFrom + offsetAt(skippedFrom) - 1);
    if (shown !== undefined) offer(instantOf(offsetAt, shown).at);
  }
  return best;
}

/**
 * When the clock first shows that time. One that it skips counts on by the offset of before; then also the
 * change's instant.
 */
function instantOf(offsetAt: OffsetAt, local: number): { at: Instant; skippedFrom?: Instant } {
  const before = offsetAt(local - dayMs);
  const after = offsetAt(local + dayMs);
  if (offsetAt(local - before) === before) return { at: local - before };
  if (offsetAt(local - after) === after) return { at: local - after };
  return { at: local - before, skippedFrom: changeBetween(offsetAt, local - after, local - before) };
}

/**
 * The first instant, to the second, at which the offset is no longer that of `from`; it is another at `to`.
 */
function changeBetween(offsetAt: OffsetAt, from: Instant, to: Instant): Instant {
  const offset = offsetAt(from);
  let low = Math.floor(from / 1000);
  let high = Math.ceil(to / 1000);
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (offsetAt(middle * 1000) === offset) low = middle;
    else high = middle;
  }
  return high * 1000;
}

/** Clocks change at full quarters of an hour: one offset is remembered for each. */
const quarterMs = hourMs / 4;
const offsetsKeptMax = 2_000;

const zones = new Map<string, OffsetAt>();

/** Shared by all expressions of a zone. */
function offsetsOf(zone: string): OffsetAt {
  if (zone === "UTC") return () => 0;
  const known = zones.get(zone);
  if (known) return known;
  const made = newOffsets(zone);
  if (zones.size >= zonesKeptMax) zones.delete(zones.keys().next().value!);
  zones.set(zone, made);
  return made;
}

function newOffsets(zone: string): OffsetAt {
  let format: Intl.DateTimeFormat;
  try {
    format = new Intl.DateTimeFormat("en-US", {
      timeZone: zone,
      hourCycle: "h23",
      year: "numeric",
      month: "numeric",
      day: "numeric",
      hour: "numeric",
      minute: "numeric",
      second: "numeric",
    });
  } catch {
    throw new Error(`unknown time zone "${zone.slice(0, 60)}"`);
  }
  const kept = new Map<number, number>();
  return (at) => {
    const quarter = Math.floor(at / quarterMs);
    let offset = kept.get(quarter);
    if (offset === undefined) {
      const start = quarter * quarterMs;
      const part: Record<string, number> = {};
      for (const { type, value } of format.formatToParts(start)) part[type] = Number(value);
      offset =
        Date.UTC(part.year!, part.month! - 1, part.day!, part.hour!, part.minute!, part.second!) - start;
      if (kept.size >= offsetsKeptMax) kept.clear();
      kept.set(quarter, offset);
    }
    return offset;
  };
}
