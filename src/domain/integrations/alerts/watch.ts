import type { Ids } from "../../../kit/ids.ts";
import { purgeSliceMax } from "../../../kit/limits.ts";
import type { Basics, LeaderWrite, Store } from "../../../store/store.ts";
import { forgetAlerts } from "./alert-rows.ts";
import { alertKeptMs, rulesLookedAtMax, unreadRuleMs } from "./limits.ts";
import type { LookAtRule } from "./looks.ts";
import * as rows from "./rule-rows.ts";
import { applyLook } from "./state.ts";

export interface WatchRulesDeps extends Basics<"store" | "clock" | "log"> {
  ids: Pick<Ids, "next">;
  look: LookAtRule;
  /** Between two looks at a rule. */
  everyMs: number;
  knowsTime: () => boolean;
  /** Called after the commit, for who looks at the list. */
  changed: (environmentId: string) => void;
  sendIn: (ms: number) => void;
}

/** Looks at rules, on the node that leads. */
export function openWatchRules(deps: WatchRulesDeps) {
  const { store, clock, log, ids, look, everyMs } = deps;

  async function lookAt(rule: rows.RuleRow, write: LeaderWrite): Promise<void> {
    const found = await look(store, rule, clock.now());
    const isTold = await write(async (session) => {
      const held = await rows.holdRule(session, rule);
      // It was changed since, or another leader has looked: what was counted is not news any more.
      if (held?.updated_at !== rule.updated_at || held.look_at !== rule.look_at) return false;
      const now = clock.now();
      const seen = found?.seen ? JSON.stringify(found.seen) : rule.seen;
      await rows.noteLook(session, rule, { seen, lookAt: now + everyMs });
      return found ? applyLook(session, rule, { look: found, now, ids }) : false;
    });
    if (!isTold) return;
    deps.sendIn(0);
    deps.changed(rule.environment_id);
  }

  return {
    /** The tick of `alerts.look`: each rule once in `everyMs`, the one that waited longest first. */
    async lookOnce(write: LeaderWrite): Promise<{ againInMs?: number }> {
      if (!deps.knowsTime()) return {};
      const due = await rows.dueRules(store, clock.now(), rulesLookedAtMax);
      for (const rule of due)
        try {
          await lookAt(rule, write);
        } catch (error) {
          const { environment_id: environmentId, name } = rule;
          log.warn("alerts.look_failed", { environmentId, name, error });
          await write((session) => rows.putOffLook(session, rule, clock.now() + unreadRuleMs));
        }
      return due.length === rulesLookedAtMax ? { againInMs: 0 } : {};
    },

    /** The tick of `alerts.forget`. */
    async forgetOnce(write: Store["write"]): Promise<void> {
      const before = clock.now() - alertKeptMs;
      while ((await write((session) => forgetAlerts(session, before, purgeSliceMax))) === purgeSliceMax);
    },
  };
}
