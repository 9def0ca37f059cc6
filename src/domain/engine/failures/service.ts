import { rfc3339, whenDue } from "../../../kit/clock.ts";
import { runFailedEvent } from "../../../kit/event-names.ts";
import { Fault } from "../../../kit/fault.ts";
import { roundRobin, workOn } from "../../../kit/round-robin.ts";
import { storedJson } from "../../../kit/stored-json.ts";
import type { Basics, Session, Store } from "../../../store/store.ts";
import type { RefusedEvent } from "../emit/delayed-due.ts";
import { type EventDraft, serverSource } from "../emit/rules.ts";
import type { Events } from "../emit/service.ts";
import type { DefinitionAt } from "../functions/definitions.ts";
import { maskedText } from "../logs/rules.ts";
import type { RunError } from "../runs/run.ts";
import type { SecretValues } from "../secrets/service.ts";
import * as rows from "./rows.ts";

/** So far back it is looked for what began a run; one with a longer past is taken for one of a failure. */
const generationsMax = 1_000;
/** The same of the runs in its past, and of those that one query looks up. */
const pastRunsMax = 10_000;
const pastRunsReadMax = 1_000;

/** Those of a slice that an event of a failure began, through any number of runs between. */
async function ofFailures(store: Store, list: readonly rows.FailedRunRow[]): Promise<Set<string>> {
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

/** A node that dies behind its take leaves its rows to the others after this long. */
const againMs = 5_000;
const sliceMax = 100;
const messageCharsMax = 2_048;

/** Of an error that is not to be had. */
const lost = {
  code: "UNKNOWN",
  message: "The error is not there any more: the run was resumed or redacted meanwhile.",
};
/** A code as servers and SDKs write it: no text of a handler. */
const ownCode = /^[A-Z]+(?:_[A-Z]+)*$/;

export interface TellFailuresDeps extends Basics<"store" | "clock" | "log"> {
  events: Pick<Events, "emit">;
  definitionOf: DefinitionAt;
  secretValues: SecretValues["of"];
  knowsTime: () => boolean;
  /** Writes what is given up into the dead letters; call the answer after the commit. */
  bury: (session: Session, refused: readonly RefusedEvent[]) => Promise<() => void>;
}

/**
 * Emits `svc.run.failed` for runs that failed for good, once each: the row was written with the run's end,
 * and its event has a key.
 */
export function openTellFailures(deps: TellFailuresDeps) {
  const { store, clock, log, events, definitionOf, secretValues } = deps;

  /** Without the secrets of its function; where those cannot be read, a code of ours alone. */
  async function errorOf({ environment_id, failed_at }: rows.FailedRunRow, facts: rows.FailedRunFacts) {
    const { error, ended_at, function_id, function_version } = facts;
    const told = (ended_at === failed_at && storedJson<Partial<RunError>>(error ?? "")) || lost;
    const { code, name, message = lost.message }: Partial<RunError> = told;
    try {
      const { secrets } = await definitionOf(environment_id, function_id, function_version);
      const values = secrets.length > 0 ? Object.values(await secretValues(environment_id, secrets)) : [];
      const shown = (text: string) => maskedText(`${text}`, values, messageCharsMax);
      return {
        ...(code !== undefined && { code: shown(code) }),
        ...(name !== undefined && { name: shown(name) }),
        message: shown(message),
      };
    } catch (cause) {
      log.warn("run.failure_unmasked", {
        environmentId: environment_id,
        functionId: function_id,
        error: cause,
      });
      return {
        ...(code !== undefined && ownCode.test(code) && { code }),
        message: "The message is left out: the function's secrets cannot be read.",
      };
    }
  }

  async function draftOf(row: rows.FailedRunRow, facts: rows.FailedRunFacts): Promise<EventDraft> {
    const value = {
      runId: row.run_id,
      function: facts.function_id,
      error: await errorOf(row, facts),
      attempts: facts.attempt,
      event: { id: facts.event_id, name: facts.event_name },
      at: rfc3339(row.failed_at),
    };
    return {
      ...{ name: runFailedEvent, version: 1, value, data: JSON.stringify(value) },
      ...{ metadata: null, metadataValue: null, isAccepted: true },
      ...{ idempotencyKey: `failed:${row.run_id}:${row.failed_at}`, ownKey: true },
    };
  }

  /** True when nothing is left to do, false when it is to be tried again, what is given up otherwise. */
  async function tell(row: rows.FailedRunRow, facts: rows.FailedRunFacts): Promise<boolean | RefusedEvent> {
    const { environment_id: environmentId, run_id: runId } = row;
    let draft: EventDraft | undefined;
    try {
      draft = await draftOf(row, facts);
      await events.emit([draft], { environmentId, source: serverSource, runId, isAccepted: true });
      return true;
    } catch (error) {
      const isPassing = !(error instanceof Fault) || error.headers?.["Retry-After"] !== undefined;
      log.warn(isPassing ? "run.failure_told_again" : "run.failure_untold", { environmentId, runId, error });
      return isPassing || !draft ? false : refusedOf(row, draft, error);
    }
  }

  /** What became of each of a slice, which is read as one. */
  async function tellAll(list: readonly rows.FailedRunRow[]): Promise<(boolean | RefusedEvent)[]> {
    if (list.length === 0) return [];
    const found = await rows.failedRunFacts(
      store,
      list.map(({ run_id }) => run_id),
    );
    const factsOf = new Map(found.map((facts) => [`${facts.environment_id}\n${facts.run_id}`, facts]));
    const isOfFailure = await ofFailures(store, list);
    return Promise.all(
      list.map((row) => {
        const facts = factsOf.get(`${row.environment_id}\n${row.run_id}`);
        return facts && !isOfFailure.has(row.run_id) ? tell(row, facts) : true;
      }),
    );
  }

  const work = workOn(
    async (slice) => {
      const now = clock.now();
      const taken = await store.write((session) =>
        rows.takeFailed(session, slice, { now, until: now + againMs }),
      );
      const ends = await tellAll(taken);
      const done = taken.filter((_, at) => ends[at] !== false);
      if (done.length === 0) return taken;
      const buried = await store.write(async (session) => {
        // Of what another node has forgotten meanwhile, nothing is left to give up.
        const gone = await rows.forgetFailed(session, done);
        const refused = taken.flatMap(({ run_id }, at) => {
          const end = ends[at]!;
          return typeof end === "object" && gone.has(run_id) ? [end] : [];
        });
        return deps.bury(session, refused);
      });
      buried();
      return taken;
    },
    () => rows.environmentsWithFailures(store, clock.now()),
  );

  return {
    /** The tick of loop `runs.failures`; answers in how many milliseconds the next is due. */
    async tellOnce(): Promise<{ againInMs?: number }> {
      if (!deps.knowsTime()) return {};
      return whenDue(clock, {
        nextAt: () => rows.nextFailedAt(store),
        move: () => roundRobin([work], { clock, limit: sliceMax }),
      });
    },
  };
}

/** As a delayed event that was given up: it is requeued in the same way. */
const refusedOf = (
  { environment_id: environmentId, run_id }: rows.FailedRunRow,
  { name, version, data, metadata, idempotencyKey }: EventDraft,
  error: Fault,
): RefusedEvent => ({
  ...{ environmentId, id: `failed_${run_id}`, name, data, error },
  rest: {
    ...{ id: `failed_${run_id}`, environment_id: environmentId, name, version, metadata, run_id },
    ...{ idempotency_key: idempotencyKey, start_refused: 0, sender: null, due_at: 0, created_at: 0 },
  },
});
