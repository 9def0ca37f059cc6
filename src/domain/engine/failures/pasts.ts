import { runFailedEvent } from "../../../kit/event-names.ts";
import type { Store } from "../../../store/store.ts";
import * as rows from "./rows.ts";

/** So far back it is looked for what began a run; one with a longer past is taken for one of a failure. */
const generationsMax = 1_000;
/** The same of the runs in its past, and of those that one query looks up. */
const pastRunsMax = 10_000;
const pastRunsReadMax = 1_000;

/** Those of a slice that an event of a failure began, through any number of runs between. */
export async function ofFailures(store: Store, list: readonly rows.FailedRunRow[]): Promise<Set<string>> {
  const environmentOf = new Map(list.map((row) => [row.run_id, row.environment_id]));
  const pasts = new Map(list.map(({ run_id }) => [run_id, new Set([run_id])]));
  const found = new Set<string>();
  /** Runs of a generation, each with those of the slice that it led to. */
  let some = new Map([...pasts.keys()].map((runId) => [runId, [runId]]));
  for (let generation = 0; some.size > 0; generation++) {
    const next = new Map<string, string[]>();
    for (const begun of await beginningsOf(store, [...some.keys()]))
      for (const led of some.get(begun.of_run)!) {
        const past = pasts.get(led)!;
        if (found.has(led) || begun.environment_id !== environmentOf.get(led)) continue;
        const isLong = generation === generationsMax || past.size >= pastRunsMax;
        if (begun.name === runFailedEvent || isLong) found.add(led);
        else if (begun.run_id !== null && !past.has(begun.run_id)) {
          past.add(begun.run_id);
          next.set(begun.run_id, [...(next.get(begun.run_id) ?? []), led]);
        }
      }
    some = next;
  }
  return found;
}

async function beginningsOf(store: Store, runIds: readonly string[]): Promise<rows.RunBeginning[]> {
  const all: rows.RunBeginning[] = [];
  for (let from = 0; from < runIds.length; from += pastRunsReadMax)
    all.push(...(await rows.beginningsOf(store, runIds.slice(from, from + pastRunsReadMax))));
  return all;
}
