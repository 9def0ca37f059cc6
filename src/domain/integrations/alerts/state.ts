import type { Instant } from "../../../kit/clock.ts";
import type { Ids } from "../../../kit/ids.ts";
import type { Session } from "../../../store/store.ts";
import * as rows from "./alert-rows.ts";
import { alertCountMax, alertSubjectsMax } from "./limits.ts";
import { type RuleRow, storedTargetsOf } from "./rule-rows.ts";
import { conditionOf, type LookFindings, type MessageKind, type Sighting } from "./rules.ts";

/** What each target of the rule is told next. */
export const messagesOf = (
  rule: RuleRow,
  { environment_id, id: alert_id }: rows.AlertRow,
  kind: MessageKind,
): rows.NextTold[] =>
  storedTargetsOf(rule).map(({ key: target, line: shown }) => ({
    ...{ environment_id, alert_id, target, shown, kind },
  }));

/** When targets are told what is decided now: a silence keeps it until its end. */
export const toldFrom = ({ silenced_until }: RuleRow, now: Instant): Instant =>
  Math.max(silenced_until ?? 0, now);

/**
 * What a look means for the alerts of a rule, whose row is held: one state is one alert, so that no two
 * looks, nor two nodes, open two. It is two statements, however much it is, so that no rule keeps others
 * waiting. Answers whether there is something to send.
 */
export async function applyLook(
  session: Session,
  rule: RuleRow,
  { look, now, ids }: { look: LookFindings; now: Instant; ids: Pick<Ids, "next"> },
): Promise<boolean> {
  const { happens = false } = conditionOf(rule.condition);
  const lasting = new Map((await rows.lastingAlerts(session, rule)).map((row) => [row.subject, row]));
  // Where none is taken to be over, others must not open beside those that are.
  let room = happens || look.isCut ? alertSubjectsMax - lasting.size : alertSubjectsMax;
  const changed: rows.AlertRow[] = [];
  const told: rows.NextTold[] = [];
  const tellAt = toldFrom(rule, now);

  const write = (alert: rows.AlertRow, kind: MessageKind | undefined) => {
    // Who was told of an alert hears of its end, after the silence: nothing would tell of it later.
    const isTold = kind === "resolved" || (kind !== undefined && tellAt === now);
    changed.push(isTold ? { ...alert, told_at: now } : alert);
    if (isTold) told.push(...messagesOf(rule, alert, kind));
  };
  for (const sighting of look.found) {
    const before = lasting.get(sighting.subject);
    if (!before && room-- <= 0) continue;
    const alert = before
      ? seenAgain(before, sighting, { happens, now })
      : newAlert(rule, sighting, { id: ids.next("alr"), now });
    write(alert, kindOf(alert, rule, now));
    lasting.delete(sighting.subject);
  }
  for (const alert of lasting.values()) {
    const isOver = happens ? now - alert.seen_at >= rule.resolve_after_ms : !look.isCut;
    if (isOver) {
      const wasTold = alert.told_at !== null && alert.resolved_at === null;
      const after = { ...alert, resolved_at: alert.resolved_at ?? now, ended_at: now };
      write(after, wasTold ? "resolved" : undefined);
    } else {
      const kind = kindOf(alert, rule, now);
      if (kind) write(alert, kind);
    }
  }
  await rows.putAlerts(session, changed);
  await rows.putDeliveries(session, told, tellAt);
  return told.length > 0;
}

/** What its targets are to be told now, if anything. */
function kindOf(alert: rows.AlertRow, rule: RuleRow, now: Instant): MessageKind | undefined {
  if (alert.resolved_at !== null) return undefined;
  if (alert.told_at === null) return "opened";
  return rule.repeat_after_ms > 0 && now - alert.told_at >= rule.repeat_after_ms ? "repeated" : undefined;
}

const bounded = (count: number): number => Math.min(alertCountMax, count);

function seenAgain(
  alert: rows.AlertRow,
  { count: more, words }: Sighting,
  { happens, now }: { happens: boolean; now: Instant },
): rows.AlertRow {
  const count = bounded(happens ? alert.count + more : more);
  return { ...alert, count, detail: words(count), seen_at: now };
}

const newAlert = (
  { environment_id, name, condition }: RuleRow,
  { subject, count, words }: Sighting,
  { id, now }: { id: string; now: Instant },
): rows.AlertRow => ({
  ...{ environment_id, id, rule: name, condition, subject, detail: words(count), count: bounded(count) },
  ...{ opened_at: now, seen_at: now, told_at: null, resolved_at: null, resolved_by: null, ended_at: null },
});
