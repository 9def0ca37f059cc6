import type { Instant } from "../../../kit/clock.ts";
import { invalid } from "../../../kit/fault.ts";
import { readNameCursor, writeNameCursor } from "../../../kit/page.ts";

/** A row that is out of balance: its id, since when, and the few values that tell what is wrong. */
export interface Offender {
  id: string;
  /** 0 where the row has no time. */
  at: Instant;
  facts: Readonly<Record<string, string | number>>;
}

/** What a check found wrong; `count` is bounded, and so are the rows behind it. */
export interface Violations {
  count: number;
  oldest: { id: string; at: Instant } | null;
  /** Oldest first; left out without any. */
  rows?: readonly Offender[];
}

type FoundRow = { id: string; at: Instant } & { readonly [fact: string]: string | number | null };

/** `position 5` stands before `position 10`. */
const byNumbers = new Intl.Collator("en", { numeric: true });

function isBefore(one: Pick<Offender, "id" | "at">, other: Pick<Offender, "id" | "at">): boolean {
  if (one.at !== other.at) return one.at < other.at;
  const order = byNumbers.compare(one.id, other.id);
  return order === 0 ? one.id < other.id : order < 0;
}

/** Of rows that a bounded look found; what they have besides id and time are their facts. */
export function violationsOf(found: readonly object[]): Violations {
  const rows = (found as readonly FoundRow[])
    .map(
      ({ id, at, ...rest }): Offender => ({
        ...{ id, at },
        facts: Object.fromEntries(
          Object.entries(rest).filter((fact): fact is [string, string | number] => fact[1] !== null),
        ),
      }),
    )
    .sort((one, other) => (isBefore(one, other) ? -1 : 1));
  const [oldest] = rows;
  if (!oldest) return { count: 0, oldest: null };
  return { count: rows.length, oldest: { id: oldest.id, at: oldest.at }, rows };
}

/** A log's end by its head and by its last entry; one row names the first place that only one of them has. */
export function headViolations(ends: { position: number; last: number; at: Instant }): Violations {
  const { position, last, at } = ends;
  const count = Math.abs(position - last);
  const id = `position ${Math.min(position, last) + 1}`;
  return count === 0
    ? { count, oldest: null }
    : { ...violationsOf([{ id, at, head: position, last }]), count };
}

type OffenderPlace = Pick<Offender, "id" | "at">;

/** Those after a place, in their order. */
export const behind = (rows: readonly Offender[], after: OffenderPlace | undefined): readonly Offender[] =>
  after === undefined ? rows : rows.filter((row) => isBefore(after, row));

export const writePlace = ({ at, id }: OffenderPlace): string => writeNameCursor(`${at} ${id}`);

export function readPlace(field: string, text: string): OffenderPlace {
  const [at = "", ...id] = readNameCursor(field, text).split(" ");
  if (!/^\d{1,16}$/.test(at)) throw invalid(field, "is not a cursor of this list");
  return { at: Number(at), id: id.join(" ") };
}
