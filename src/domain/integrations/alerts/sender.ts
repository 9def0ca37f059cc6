import { backoff } from "../../../kit/backoff.ts";
import { Fault } from "../../../kit/fault.ts";
import { openHolderLimit } from "../../../kit/holder-limit.ts";
import type { Ids } from "../../../kit/ids.ts";
import type { Basics, LeaderWrite } from "../../../store/store.ts";
import type { Keyring } from "../../access/keyring/service.ts";
import * as alertRows from "./alert-rows.ts";
import * as limits from "./limits.ts";
import { getRule, type RuleKey, type RuleRow } from "./rule-rows.ts";
import { hashOf, lineOf, type RuleTarget } from "./rules.ts";
import { type AlertMessage, openTell, type TellDeps, type UntakenMessage } from "./tell.ts";

/** What targets are sealed for: the sealed text opens in no other row. */
export const placeOf = ({ environment_id, name }: RuleKey): string => `alert_rule/${environment_id}/${name}`;

export function openTargets(keyring: Pick<Keyring, "unseal">) {
  return async (rule: RuleKey & Pick<RuleRow, "sealed">): Promise<RuleTarget[]> => {
    try {
      return JSON.parse(await keyring.unseal(placeOf(rule), rule.sealed)) as RuleTarget[];
    } catch (cause) {
      const text = `the targets of alert rule ${rule.name} cannot be read: put it again`;
      throw new Fault("failed_precondition", text, { cause });
    }
  };
}

/**
 * A look of an environment with 1,000 targets takes 7 to 12 ms, and each end of a message asks for one. The
 * pause behind a look is this many times as long as the look took, and at most `looksApartMsMax`: one
 * look at a store that stands still puts off no other for long.
 */
const looksApart = 10;
const looksApartMsMax = 2_000;

export interface SendAlertsDeps extends Basics<"store" | "clock" | "log">, TellDeps {
  ids: Pick<Ids, "chance" | "next">;
  keyring: Pick<Keyring, "unseal">;
  /** Undefined when it is gone. */
  environmentName: (environmentId: string) => Promise<string | undefined>;
  /** The first pause between two tries of a message, and how many there are. */
  retryMs: number;
  attemptsMax: number;
  sendIn: (ms: number) => void;
}

/** Sends messages of alerts, on the node that leads. */
export function openSendAlerts(deps: SendAlertsDeps) {
  const { store, clock, ids, timeoutMs, attemptsMax } = deps;
  const targetsOf = openTargets(deps.keyring);
  const pauses = { minMs: deps.retryMs, maxMs: limits.alertPauseMsMax };
  const growing = backoff({ ...pauses, chance: ids.chance });
  const stop = new AbortController();
  const tell = openTell(deps, stop.signal);
  /** What is being sent, by the message; one target gets one at a time. */
  const underWay = new Map<string, { environmentId: string; sending: Promise<void> }>();

  /** Undefined when the alert, its rule or its environment is gone, or the rule tells the target no more. */
  async function toSend(
    row: alertRows.ToldRow,
  ): Promise<{ target: RuleTarget; message: AlertMessage } | undefined> {
    const { environment_id, alert_id: id, kind, number } = row;
    const alert = await alertRows.getAlert(store, { environment_id, id });
    const rule = alert && (await getRule(store, { environment_id, name: alert.rule }));
    const name = await deps.environmentName(environment_id);
    if (!rule || name === undefined) return undefined;
    const target = (await targetsOf(rule)).find((one) => hashOf(one) === row.target);
    const environment = { id: environment_id, name };
    return target && { target, message: { id: `${id}_${number}`, kind, alert, environment } };
  }

  async function untaken(row: alertRows.ToldRow): Promise<UntakenMessage> {
    try {
      const found = await toSend(row);
      if (!found) return { error: "the rule has no such target any more", isFinal: true };
      const { kind, alert } = found.message;
      // A silence kept its end from the targets, as it kept its beginning.
      if (kind !== "resolved" && alert.resolved_at !== null)
        return { error: "it was over before the silence was", isFinal: true };
      return await tell(found.target, found.message);
    } catch (error) {
      if (error instanceof Fault) return { error: error.message };
      throw error;
    }
  }

  async function send(row: alertRows.ToldRow, write: LeaderWrite): Promise<void> {
    const until = clock.now() + timeoutMs + limits.alertLeaseBesideMs;
    if ((await write((session) => alertRows.claimDelivery(session, row, until))) === 0) return;
    const refusal = await untaken(row);
    // This node stops: another one tries it again, when the claim is over.
    if (refusal && stop.signal.aborted) return;
    const attempts = row.attempts + 1;
    const now = clock.now();
    const pauseMs = Math.max(
      Math.round(growing(attempts)),
      Math.min(limits.alertPauseMsMax, refusal?.retryAfterMs ?? 0),
    );
    const isOver = refusal?.isFinal || attempts >= attemptsMax;
    await write((session) =>
      alertRows.noteDelivery(session, row, {
        state: !refusal ? "sent" : isOver ? "given_up" : "waiting",
        due_at: refusal ? now + pauseMs : now,
        last_error: refusal?.error.slice(0, limits.alertErrorCharsMax) ?? null,
        sent_at: refusal ? null : now,
      }),
    );
    deps.sendIn(refusal ? pauseMs : 0);
  }

  function begin(row: alertRows.ToldRow, write: LeaderWrite): void {
    const { environment_id: environmentId } = row;
    const key = keyOf(row);
    const sending = send(row, write)
      .catch((error) => deps.log.warn("alerts.delivery_left", { environmentId, id: row.alert_id, error }))
      .finally(() => underWay.delete(key));
    underWay.set(key, { environmentId, sending });
  }

  const due = openDue(deps);

  const sendsOf = (environmentId: string): number =>
    [...underWay.values()].filter((one) => one.environmentId === environmentId).length;

  return {
    /**
     * The tick of `alerts.deliver`: begins what is due; a target that hangs holds up no other. Where a tenant
     * has made a look dear, the next one comes later, and what was found goes on.
     */
    async deliverOnce(write: LeaderWrite): Promise<{ againInMs?: number }> {
      const { rows, againInMs } = await due.next();
      for (const row of rows) {
        const isFull = underWay.size >= limits.alertSendsMax || stop.signal.aborted;
        const isBusy = sendsOf(row.environment_id) >= limits.alertSendsOfEnvironmentMax;
        if (isFull || isBusy || underWay.has(keyOf(row))) due.putBack(row);
        else begin(row, write);
      }
      return againInMs > 0 ? { againInMs } : {};
    },

    test: openTest(deps, tell),

    /** Begins nothing more, and gives up what is under way: it is tried again elsewhere. */
    async drain(): Promise<void> {
      stop.abort();
      await Promise.all([...underWay.values()].map(({ sending }) => sending));
    },
  };
}

/** A message that is marked as a test, to each target: as many at once as a leader sends of what happened. */
function openTest(
  { clock, ids, keyring, environmentName }: SendAlertsDeps,
  tell: ReturnType<typeof openTell>,
) {
  const targetsOf = openTargets(keyring);
  const underWay = openHolderLimit({
    ...{ most: limits.alertTargetsMax, all: limits.alertSendsMax },
    ...{ what: "targets that are tested", whose: "environment" },
  });
  return async (rule: RuleRow): Promise<{ target: string; delivered: boolean; error: string }[]> => {
    const { environment_id: id, name, condition, function_id } = rule;
    const environment = { id, name: (await environmentName(id)) ?? id };
    const now = clock.now();
    const alert = {
      ...{ id: ids.next("alr"), rule: name, condition, subject: function_id ?? "", count: 0 },
      ...{ detail: "this is a test, nothing is wrong", opened_at: now, resolved_at: null },
    };
    const message: AlertMessage = { id: alert.id, kind: "test", alert, environment };
    const targets = await targetsOf(rule);
    const leave = underWay.acquire(id, targets.length);
    try {
      return await Promise.all(
        targets.map(async (target) => {
          const refusal = await tell(target, message);
          return { target: lineOf(target), delivered: !refusal, error: refusal?.error ?? "" };
        }),
      );
    } finally {
      leave();
    }
  };
}

/** Messages that are due: of a look, and of the one before, while it is too early for another. */
function openDue({ store, clock }: Pick<SendAlertsDeps, "store" | "clock">) {
  let left: alertRows.ToldRow[] = [];
  let goodUntil = 0;
  return {
    async next(): Promise<{ rows: readonly alertRows.ToldRow[]; againInMs: number }> {
      const waitMs = goodUntil - clock.elapsed();
      if (waitMs <= 0) {
        const lookedAt = clock.elapsed();
        left = await alertRows.dueDeliveries(store, clock.now(), {
          most: limits.alertSendsMax * 2,
          ofEach: limits.alertSendsOfEnvironmentMax * 4,
        });
        const tookMs = clock.elapsed() - lookedAt;
        goodUntil = clock.elapsed() + Math.min(looksApartMsMax, looksApart * tookMs);
      }
      const rows = left;
      left = [];
      return { rows, againInMs: Math.ceil(waitMs) };
    },
    putBack: (row: alertRows.ToldRow) => void left.push(row),
  };
}

const keyOf = ({ environment_id, target }: alertRows.ToldKey): string => `${environment_id}\n${target}`;

export type SendAlerts = ReturnType<typeof openSendAlerts>;
