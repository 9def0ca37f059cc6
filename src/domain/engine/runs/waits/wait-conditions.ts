import { column, sql } from "../../../../kit/sql.ts";
import { eventText } from "../../../../kit/stored-event.ts";
import type { Session } from "../../../../store/store.ts";
import { dropWaits } from "./drop-waits.ts";
import type { Resolution, WaitingRow } from "./resolve-steps.ts";
import type { MatchedEvent, WaitRow } from "./wait-rows.ts";

/** A wait and the first event that it matches. */
export interface MatchedWait {
  wait: WaitRow;
  event: MatchedEvent;
}

type ConditionWait = Pick<WaitRow, "run_id" | "step_id" | "of_step" | "condition" | "mode">;

/** A condition of a step, and what met it. */
export interface MetCondition<Wait extends ConditionWait = ConditionWait> {
  wait: Wait;
  kind: "event" | "stream" | "key" | "run";
  /** JSON of what the handler gets. */
  text: string;
  /** Of the event; null of anything else. */
  position: number | null;
  /** What the history says of it. */
  detail: object;
}

/** The event as the waiting handler gets it. */
export function eventJson(event: MatchedEvent): string {
  const key = event.idempotency_key;
  return eventText(event, key === null ? undefined : { idempotencyKey: key }, "absent");
}

export const metBy = ({ wait, event }: MatchedWait): MetCondition => ({
  ...{ wait, kind: "event", text: eventJson(event), position: event.position },
  detail: { event_id: event.id },
});

interface ConditionRow {
  run_id: string;
  condition: string;
  met: string | null;
  /** Of a met condition: the position of its event, 0 of anything else. */
  from_position: number;
}

/**
 * Conditions of steps that wait for several things. The first that is met ends a wait for any; what it waited for
 * besides is deleted with it. A wait for all keeps what came until the last one is met. The caller holds the
 * executions' locks and writes the outcomes, whose texts follow `textCount` others.
 */
export async function meetConditions(
  session: Session,
  found: readonly MetCondition[],
  locked: ReadonlyMap<string, WaitingRow>,
  textCount: number,
): Promise<{ woken: Resolution[]; texts: string[] }> {
  const texts: string[] = [];
  const woken: Resolution[] = [];
  const byRun = new Map<string, MetCondition[]>();
  for (const one of found) {
    const row = locked.get(one.wait.run_id);
    if (row?.state !== "waiting" || row.waiting_step_id !== one.wait.of_step) continue;
    byRun.set(row.run_id, [...(byRun.get(row.run_id) ?? []), one]);
  }
  if (byRun.size === 0) return { woken, texts };
  const wake = (row: WaitingRow, text: string, position: number | null, { detail }: MetCondition) => {
    texts.push(text);
    const stepId = row.waiting_step_id!;
    const output = textCount + texts.length;
    woken.push({
      row,
      stepId,
      status: "completed",
      output,
      error: null,
      seenPosition: position ?? "kept",
      detail: JSON.stringify({ step_id: stepId, ...detail }),
    });
  };
  const gathering = new Map<string, MetCondition>();
  const met: MetCondition[] = [];
  for (const [runId, list] of byRun) {
    const inOrder = list.toSorted((a, b) => (a.position ?? 0) - (b.position ?? 0));
    const first = inOrder[0]!;
    if (first.wait.mode === "any") {
      const { condition } = first.wait;
      const text = `{"name":${JSON.stringify(condition)},"${first.kind}":${first.text}}`;
      wake(locked.get(runId)!, text, first.position, first);
    } else {
      met.push(...inOrder);
      gathering.set(runId, inOrder.at(-1)!);
    }
  }
  for (const [runId, rows] of await gather(session, met))
    if (rows.every((row) => row.met !== null)) {
      const members = rows.map((row) => `${JSON.stringify(row.condition)}:${row.met}`);
      const seen = Math.max(...rows.map((row) => row.from_position));
      wake(locked.get(runId)!, `{${members.join(",")}}`, seen || null, gathering.get(runId)!);
    }
  await dropWaits(
    session,
    woken.map(({ row }) => row.run_id),
  );
  return { woken, texts };
}

/** Notes what met the conditions, so that nothing else does; answers all conditions of their runs. */
async function gather(
  session: Session,
  met: readonly MetCondition[],
): Promise<ReadonlyMap<string, ConditionRow[]>> {
  const byRun = new Map<string, ConditionRow[]>();
  if (met.length === 0) return byRun;
  await session.run(sql`UPDATE waits SET met = v.met, event_name = '', fresh_at = NULL, due_at = NULL,
      from_position = v.position
    FROM ${session.seams.rowsFrom("v", {
      run_id: column.text(met.map(({ wait }) => wait.run_id)),
      step_id: column.text(met.map(({ wait }) => wait.step_id)),
      met: column.text(met.map(({ text }) => text)),
      position: column.bigint(met.map(({ position }) => position ?? 0)),
    })} WHERE waits.run_id = v.run_id AND waits.kind = 'wait' AND waits.step_id = v.step_id`);
  const runIds = [...new Set(met.map(({ wait }) => wait.run_id))];
  const rows = await session.all<ConditionRow>(sql`SELECT run_id, condition, met, from_position FROM waits
    WHERE kind = 'wait' AND run_id IN ${sql.list(runIds)} ORDER BY run_id, step_id`);
  for (const row of rows) byRun.set(row.run_id, [...(byRun.get(row.run_id) ?? []), row]);
  return byRun;
}
