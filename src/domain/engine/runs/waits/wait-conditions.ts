import { column, sql } from "../../../../kit/sql.ts";
import { eventText } from "../../../../kit/stored-event.ts";
import type { Session } from "../../../../store/store.ts";
import { stepKey } from "../step-moves.ts";
import { dropStepWaits } from "./drop-waits.ts";
import { isHeld, type Resolution, type WaitingRow } from "./resolve-steps.ts";
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
  of_step: string;
  condition: string;
  met: string | null;
  /** Of a met condition: the position of its event, 0 of anything else. */
  from_position: number;
}

/**
 * Conditions of steps that wait for several things. The first that is met ends a wait for any; what it waited
 * for besides is deleted with it. A wait for all keeps what came until the last one is met. The caller holds
 * the executions' locks and writes the outcomes, whose texts follow `textCount` others.
 */
export async function meetConditions(
  session: Session,
  found: readonly MetCondition[],
  locked: ReadonlyMap<string, WaitingRow>,
  textCount: number,
): Promise<{ woken: Resolution[]; texts: string[] }> {
  const texts: string[] = [];
  const woken: Resolution[] = [];
  const byStep = new Map<string, MetCondition[]>();
  for (const one of found) {
    const row = locked.get(one.wait.run_id);
    if (!row || isHeld(row)) continue;
    const key = keyOf(one.wait);
    byStep.set(key, [...(byStep.get(key) ?? []), one]);
  }
  if (byStep.size === 0) return { woken, texts };
  const wake = ({ wait, detail }: MetCondition, text: string, position: number | null) => {
    texts.push(text);
    const stepId = wait.of_step!;
    woken.push({
      row: locked.get(wait.run_id)!,
      stepId,
      status: "completed",
      output: textCount + texts.length,
      error: null,
      seenPosition: position ?? "kept",
      detail: JSON.stringify({ step_id: stepId, ...detail }),
    });
  };
  const gathering = new Map<string, MetCondition>();
  const met: MetCondition[] = [];
  for (const [key, list] of byStep) {
    const inOrder = list.toSorted((a, b) => (a.position ?? 0) - (b.position ?? 0));
    const first = inOrder[0]!;
    if (first.wait.mode === "any") {
      const { condition } = first.wait;
      const text = `{"name":${JSON.stringify(condition)},"${first.kind}":${first.text}}`;
      wake(first, text, first.position);
    } else {
      met.push(...inOrder);
      gathering.set(key, inOrder.at(-1)!);
    }
  }
  for (const [key, rows] of await gather(session, met))
    if (rows.every((row) => row.met !== null)) {
      const members = rows.map((row) => `${JSON.stringify(row.condition)}:${row.met}`);
      const seen = Math.max(...rows.map((row) => row.from_position));
      const last = gathering.get(key);
      if (last) wake(last, `{${members.join(",")}}`, seen || null);
    }
  await dropStepWaits(
    session,
    woken.map(({ row, stepId }) => ({ runId: row.run_id, stepId })),
  );
  return { woken, texts };
}

const keyOf = ({ run_id, of_step }: { run_id: string; of_step: string | null }) => stepKey(run_id, of_step);

/** Notes what met the conditions, so that nothing else does. Answers all conditions of their runs' steps. */
async function gather(
  session: Session,
  met: readonly MetCondition[],
): Promise<ReadonlyMap<string, ConditionRow[]>> {
  const byStep = new Map<string, ConditionRow[]>();
  if (met.length === 0) return byStep;
  await session.run(sql`UPDATE waits SET met = v.met, event_name = '', fresh_at = NULL, due_at = NULL,
      from_position = v.position
    FROM ${session.seams.rowsFrom("v", {
      run_id: column.text(met.map(({ wait }) => wait.run_id)),
      step_id: column.text(met.map(({ wait }) => wait.step_id)),
      met: column.text(met.map(({ text }) => text)),
      position: column.bigint(met.map(({ position }) => position ?? 0)),
    })} WHERE waits.run_id = v.run_id AND waits.kind = 'wait' AND waits.step_id = v.step_id`);
  const runIds = [...new Set(met.map(({ wait }) => wait.run_id))];
  const rows =
    await session.all<ConditionRow>(sql`SELECT run_id, of_step, condition, met, from_position FROM waits
    WHERE kind = 'wait' AND of_step IS NOT NULL AND run_id IN ${sql.list(runIds)} ORDER BY run_id, step_id`);
  for (const row of rows) byStep.set(keyOf(row), [...(byStep.get(keyOf(row)) ?? []), row]);
  return byStep;
}
