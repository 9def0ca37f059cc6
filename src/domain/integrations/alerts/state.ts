import type { Instant } from "../../../kit/clock.ts";
import type { Ids } from "../../../kit/ids.ts";
import type { Session } from "../../../store/store.ts";
import * as rows from "./alert-rows.ts";
import { alertCountMax } from "./limits.ts";
import { type RuleRow, storedTargetsOf } from "./rule-rows.ts";
import { conditionOf, type LookFindings, type MessageKind, type Sighting } from "./rules.ts";

/** Writes what each target is told next, with the change that it is told of. */
export async function tellTargets(
  session: Session,
  rule: RuleRow,
  { alert, kind, now }: { alert: rows.AlertRow; kind: MessageKind; now: Instant },
): Promise<void> {
  const { environment_id, id: alert_id } = alert;
  for (const { key, line: shown } of storedTargetsOf(rule))
    await rows.putDelivery(session, { environment_id, alert_id, target: key }, { shown, kind, now });
}

/**
 * What a look means for the alerts of a rule, whose row is held: one state is one alert, so that no two
 * looks, nor two nodes, open two. Answers whether there is something to send.
 */
export async function applyLook(
  session: Session,
  rule: RuleRow,
  { look, now, ids }: { look: LookFindings; now: Instant; ids: Pick<Ids, "next"> },
): Promise<boolean> {
  const { happens = false } = conditionOf(rule.condition);
  const lasting = new Map((await rows.lastingAlerts(session, rule)).map((row) => [row.subject, row]));
  const isSilent = (rule.silenced_until ?? 0) > now;
  let isTold = false;

  const write = async (alert: rows.AlertRow, kind: MessageKind | undefined) => {
    const told = kind !== undefined && !isSilent;
    const after = told ? { ...alert, told_at: now } : alert;
    await rows.putAlert(session, after);
    if (told) await tellTargets(session, rule, { alert: after, kind, now });
    isTold ||= told;
  };
  for (const sighting of look.found) {
    const before = lasting.get(sighting.subject);
    const alert = before
      ? seenAgain(before, sighting, { happens, now })
      : newAlert(rule, sighting, { id: ids.next("alr"), now });
    await write(alert, kindOf(alert, rule, now));
    lasting.delete(sighting.subject);
  }
  for (const alert of lasting.values()) {
    const isOver = happens ? now - alert.seen_at >= rule.resolve_after_ms : !look.isCut;
    if (isOver) {
      const wasTold = alert.told_at !== null && alert.resolved_at === null;
      const after = { ...alert, resolved_at: alert.resolved_at ?? now, ended_at: now };
      await write(after, wasTold ? "resolved" : undefined);
    } else {
      const kind = kindOf(alert, rule, now);
      if (kind) await write(alert, kind);
    }
  }
  return isTold;
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
