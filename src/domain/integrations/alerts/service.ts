import type { Instant } from "../../../kit/clock.ts";
import { Fault, invalid } from "../../../kit/fault.ts";
import { pageOf, pageSize, readNameCursor, writeNameCursor } from "../../../kit/page.ts";
import type { Basics, Session } from "../../../store/store.ts";
import type { Keyring } from "../../access/keyring/service.ts";
import * as alertRows from "./alert-rows.ts";
import { alertRulesMax, silenceMsMax } from "./limits.ts";
import type { LookAtRule } from "./looks.ts";
import * as rows from "./rule-rows.ts";
import {
  type CheckedRule,
  checkedRule,
  conditionOf,
  hashOf,
  lineOf,
  missingAlert,
  missingRule,
  type RuleInput,
  type RuleTarget,
  shownTarget,
} from "./rules.ts";
import { openTargets, placeOf, type SendAlerts } from "./sender.ts";
import { messagesOf, toldFrom } from "./state.ts";

export interface AlertsDeps extends Basics<"store" | "clock"> {
  keyring: Pick<Keyring, "seal" | "unseal" | "writeSealed">;
  shareEnvironment: (session: Session, environmentId: string) => Promise<void>;
  look: LookAtRule;
  send: Pick<SendAlerts, "test">;
  /** Asks for the next round of messages, and for the next look. */
  sendIn: (ms: number) => void;
  lookIn: (ms: number) => void;
}

/** An alert, with what became of its messages. */
export interface ShownAlert {
  row: alertRows.AlertRow;
  deliveries: alertRows.ToldRow[];
}

const storedTarget = (target: RuleTarget): rows.StoredTarget => ({
  ...{ key: hashOf(target), line: lineOf(target), shown: shownTarget(target) },
});

const keyOf = (environmentId: string, name: string): rows.RuleKey => ({
  environment_id: environmentId,
  name,
});

/** Rules of an environment, and what they found. */
export const openAlerts = (deps: AlertsDeps) => ({ ...openRules(deps), ...openFound(deps) });

function openRules(deps: AlertsDeps) {
  const { store, clock, keyring, look } = deps;
  const targetsOf = openTargets(keyring);

  async function find(environmentId: string, name: string): Promise<rows.RuleRow> {
    const row = await rows.getRule(store, keyOf(environmentId, name));
    if (!row) throw missingRule(name);
    return row;
  }

  /** As it is stored; what it looks for in another way begins anew. */
  async function rowOf(
    session: Session,
    environmentId: string,
    checked: CheckedRule,
    before: rows.RuleRow | undefined,
  ): Promise<rows.RuleRow> {
    const now = clock.now();
    const key = keyOf(environmentId, checked.name);
    const row: rows.RuleRow = {
      ...key,
      ...{ condition: checked.condition, function_id: checked.functionId },
      bounds: JSON.stringify(checked.bounds),
      targets: JSON.stringify(checked.targets.map(storedTarget)),
      sealed: keyring.seal(placeOf(key), JSON.stringify(checked.targets)),
      ...{ repeat_after_ms: checked.repeatAfterMs, resolve_after_ms: checked.resolveAfterMs },
      silenced_until: before?.silenced_until ?? null,
      ...{ seen: null, look_at: now, created_at: before?.created_at ?? now },
      updated_at: Math.max(now, (before?.updated_at ?? 0) + 1),
    };
    if (before?.condition === row.condition && before.function_id === row.function_id)
      return { ...row, seen: before.seen };
    const counted = conditionOf(row.condition).happens && (await look(session, row, now));
    return { ...row, seen: counted ? JSON.stringify(counted.seen ?? {}) : null };
  }

  return {
    find,
    /** The rule that a put replaces. */
    before: (environmentId: string, name: string) => rows.getRule(store, keyOf(environmentId, name)),

    async put(environmentId: string, input: RuleInput): Promise<rows.RuleRow> {
      const key = keyOf(environmentId, input.name);
      const old = await rows.getRule(store, key);
      const checked = checkedRule(input, old ? await targetsOf(old).catch(() => []) : []);
      const row = await keyring.writeSealed(async (session) => {
        await deps.shareEnvironment(session, environmentId);
        const before = await rows.holdRule(session, key);
        if (!before && (await rows.countRules(session, environmentId)) >= alertRulesMax)
          throw new Fault("resource_exhausted", `an environment holds at most ${alertRulesMax} alert rules`);
        if (before?.updated_at !== old?.updated_at)
          throw new Fault("aborted", `alert rule ${input.name} was changed at the same time: try again`);
        const made = await rowOf(session, environmentId, checked, before);
        const isOther =
          before && (before.condition !== made.condition || before.function_id !== made.function_id);
        if (isOther) await endAll(session, key, clock.now());
        await rows.putRule(session, made);
        await rows.forgetCounts(session, environmentId);
        return { result: made, sealed: [made.sealed] };
      });
      deps.lookIn(0);
      return row;
    },

    list: (environmentId: string) => rows.listRules(store, environmentId),

    async remove(environmentId: string, name: string): Promise<void> {
      const key = keyOf(environmentId, name);
      await store.write(async (session) => {
        if (!(await rows.holdRule(session, key))) throw missingRule(name);
        await rows.deleteRule(session, key);
        await rows.forgetCounts(session, environmentId);
      });
    },

    /** `until` undefined ends the silence. */
    async silence(environmentId: string, name: string, until: Instant | undefined): Promise<rows.RuleRow> {
      const now = clock.now();
      if (until !== undefined && (until <= now || until > now + silenceMsMax))
        throw invalid("until", "must be to come, and at most a year from now");
      const key = keyOf(environmentId, name);
      const row = await store.write(async (session) => {
        if ((await rows.silenceRule(session, key, { until: until ?? null, now })) === 0)
          throw missingRule(name);
        // What targets have not taken yet is told after the silence, too.
        await alertRows.putOffDeliveries(session, key, until ?? now);
        return (await rows.getRule(session, key))!;
      });
      if (until === undefined) deps.sendIn(0);
      return row;
    },

    test: deps.send.test,

    /** Seals all targets again, in the transaction that rotates the master key. */
    async reseal(session: Session, again: (place: string, sealed: string) => string): Promise<void> {
      for (const rule of await rows.sealedRules(session))
        await rows.resealRule(session, rule, again(placeOf(rule), rule.sealed));
    },
  };
}

function openFound({ store, clock, sendIn }: AlertsDeps) {
  async function withDeliveries(
    environmentId: string,
    list: readonly alertRows.AlertRow[],
  ): Promise<ShownAlert[]> {
    const ids = list.map(({ id }) => id);
    const all = ids.length === 0 ? [] : await alertRows.deliveriesOf(store, environmentId, ids);
    return list.map((row) => ({ row, deliveries: all.filter(({ alert_id }) => alert_id === row.id) }));
  }

  return {
    /** Newest first. */
    async alerts(
      environmentId: string,
      asked: { rule?: string; state?: string; limit?: number; cursor?: string },
    ): Promise<{ alerts: ShownAlert[]; nextCursor: string | undefined }> {
      const { rule = "", state = "", limit, cursor } = asked;
      if (!["", "open", "resolved"].includes(state)) throw invalid("state", "must be open or resolved");
      const size = pageSize(limit);
      const before = cursor ? readNameCursor("cursor", cursor) : undefined;
      const found = await alertRows.listAlerts(store, environmentId, {
        rule,
        state,
        before,
        limit: size + 1,
      });
      const page = pageOf(found, size, ({ id }) => writeNameCursor(id));
      return { alerts: await withDeliveries(environmentId, page.items), nextCursor: page.nextCursor };
    },

    async alert(environmentId: string, id: string): Promise<alertRows.AlertRow> {
      const row = await alertRows.getAlert(store, { environment_id: environmentId, id });
      if (!row) throw missingAlert(id);
      return row;
    },

    /** What happens may open another one at once; what lasts is told again only after it was over. */
    async resolve(environmentId: string, id: string, by: string): Promise<ShownAlert> {
      const now = clock.now();
      const row = await store.write(async (session) => {
        const seen = await alertRows.getAlert(session, { environment_id: environmentId, id });
        // As a look does: the rule before its alerts.
        const rule = seen && (await rows.holdRule(session, keyOf(environmentId, seen.rule)));
        const alert = rule && (await alertRows.holdAlert(session, seen));
        if (!alert) throw missingAlert(id);
        if (alert.resolved_at !== null) return alert;
        const isOver = conditionOf(rule.condition).happens === true;
        const after = { ...alert, resolved_at: now, resolved_by: by, ...(isOver && { ended_at: now }) };
        await alertRows.putAlerts(session, [after]);
        if (alert.told_at !== null)
          await alertRows.putDeliveries(session, messagesOf(rule, after, "resolved"), toldFrom(rule, now));
        return after;
      });
      sendIn(0);
      return (await withDeliveries(environmentId, [row]))[0]!;
    },
  };
}

/** The rule looks for something else from here on. */
async function endAll(session: Session, key: rows.RuleKey, now: Instant): Promise<void> {
  const lasting = await alertRows.lastingAlerts(session, key);
  await alertRows.putAlerts(
    session,
    lasting.map((alert) => ({ ...alert, resolved_at: alert.resolved_at ?? now, ended_at: now })),
  );
}

export type Alerts = ReturnType<typeof openAlerts>;
