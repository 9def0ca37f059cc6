/** The fields of a cron expression, each as the sorted list of what it allows. */
export type CronFields = ReturnType<typeof parseCronFields>;

const nicknames: Record<string, string> = {
  "@yearly": "0 0 1 1 *",
  "@annually": "0 0 1 1 *",
  "@monthly": "0 0 1 * *",
  "@weekly": "0 0 * * 0",
  "@daily": "0 0 * * *",
  "@midnight": "0 0 * * *",
  "@hourly": "0 * * * *",
};

const monthNames = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const weekdayNames = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/** Throws an Error that names the field and the rule. */
export function parseCronFields(pattern: string) {
  const text = pattern.startsWith("@") ? nicknames[pattern.toLowerCase()] : pattern;
  if (text === undefined)
    throw new Error(
      `unknown schedule name "${pattern.slice(0, 60)}" (one of ${Object.keys(nicknames).join(", ")})`,
    );
  const parts = text === "" ? [] : text.split(/\s+/);
  if (parts.length !== 5 && parts.length !== 6)
    throw new Error(`has ${parts.length} fields instead of 5, or 6 with leading seconds`);
  const [second, minute, hour, day, month, weekday] = parts.length === 6 ? parts : ["0", ...parts];
  return {
    seconds: read("second", second!, 0, 59),
    minutes: read("minute", minute!, 0, 59),
    hours: read("hour", hour!, 0, 23),
    /** Undefined: the field says nothing about the day. */
    days: isAny(day!) ? undefined : new Set(read("day of the month", day!, 1, 31)),
    months: new Set(read("month", month!, 1, 12, monthNames, 1)),
    /** 0 is Sunday. */
    weekdays: isAny(weekday!)
      ? undefined
      : new Set(read("day of the week", weekday!, 0, 7, weekdayNames, 0).map((one) => one % 7)),
  };
}

const isAny = (text: string) => text === "*" || text === "?";

/** Values, ranges and steps of one field. No field has more than 60 values. */
const listItemsMax = 60;

/** Lists of values, ranges and steps: `1,5-10,20-59/10`, `0-59/15`, `MON-FRI`. */
function read(
  field: string,
  text: string,
  least: number,
  most: number,
  names: readonly string[] = [],
  firstName = 0,
): number[] {
  const fail = () => new Error(`${field}: "${text.slice(0, 60)}" must be from ${least} to ${most}`);
  const one = (word: string): number => {
    const named = names.indexOf(word.toLowerCase());
    const value = named >= 0 ? named + firstName : /^\d{1,4}$/.test(word) ? Number(word) : Number.NaN;
    if (!(value >= least && value <= most)) throw fail();
    return value;
  };
  // A week ends with Saturday, also where 7 stands for Sunday.
  const open = names === weekdayNames ? 6 : most;
  const allowed = new Set<number>();
  const items = text.split(",");
  if (items.length > listItemsMax) throw new Error(`${field}: a list has at most ${listItemsMax} items`);
  for (const item of items) {
    const [range = "", step, ...more] = item.split("/");
    const [from = "", to, ...others] = range.split("-");
    if (more.length > 0 || others.length > 0 || (step !== undefined && !/^[1-9]\d{0,3}$/.test(step)))
      throw fail();
    const every = step === undefined ? 1 : Number(step);
    const start = isAny(range) ? least : one(from);
    // `5/10` counts on to the field's end.
    const end = to !== undefined ? one(to) : isAny(range) || step !== undefined ? open : start;
    if (end < start) throw fail();
    for (let value = start; value <= end; value += every) allowed.add(value);
  }
  return [...allowed].sort((a, b) => a - b);
}

/** A date that comes at all comes within this: from one leap day to the next around a century without one. */
const yearsMax = 9;

/**
 * The first local time that the fields allow after `local`; both as milliseconds of a clock that knows no
 * zone.
 */
export function nextLocal(fields: CronFields, local: number): number | undefined {
  const start = new Date(Math.floor(local / 1000) * 1000 + 1000);
  const lastYear = start.getUTCFullYear() + yearsMax;
  let [year, month, day] = [start.getUTCFullYear(), start.getUTCMonth(), start.getUTCDate()];
  let time: number | undefined = timeFrom(
    fields,
    start.getUTCHours(),
    start.getUTCMinutes(),
    start.getUTCSeconds(),
  );
  while (year <= lastYear) {
    const midnight = new Date(Date.UTC(year, month, day));
    // Days beyond the month's end are days of the next.
    [year, month, day] = [midnight.getUTCFullYear(), midnight.getUTCMonth(), midnight.getUTCDate()];
    if (!fields.months.has(month + 1)) {
      month++;
      day = 1;
    } else {
      if (time !== undefined && allowsDay(fields, midnight)) return midnight.getTime() + time;
      day++;
    }
    time = timeFrom(fields, 0, 0, 0);
  }
  return undefined;
}

/** When both are given, either is enough. */
function allowsDay({ days, weekdays }: CronFields, date: Date): boolean {
  const byDay = days?.has(date.getUTCDate());
  const byWeekday = weekdays?.has(date.getUTCDay());
  if (byDay === undefined) return byWeekday ?? true;
  return byDay || (byWeekday ?? false);
}

/** The first allowed time of a day from then on, in milliseconds of the day. */
function timeFrom({ hours, minutes, seconds }: CronFields, hour: number, minute: number, second: number) {
  for (const h of hours) {
    if (h < hour) continue;
    for (const m of minutes) {
      if (h === hour && m < minute) continue;
      const s = seconds.find((one) => h > hour || m > minute || one >= second);
      if (s !== undefined) return ((h * 60 + m) * 60 + s) * 1000;
    }
  }
  return undefined;
}
