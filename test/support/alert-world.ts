import { expect } from "bun:test";
import { type Sql, sql } from "../../src/kit/sql.ts";
import { startAlertReceiver } from "./alert-receiver.ts";
import type { startMailServer } from "./mail-server.ts";
import { type EngineName, startTestServer } from "./server.ts";
import { until } from "./until.ts";

export const waiting = { deadlineMs: 20_000 };

export interface FoundAlert {
  id: string;
  rule: string;
  state: string;
  count?: number;
  subject?: string;
  detail?: string;
  deliveries?: { target: string; state: string; attempts: number; lastError?: string; kind: string }[];
}

export type AlertWorld = Awaited<ReturnType<typeof openAlertWorld>>;

/** A server that looks at its rules ten times a second, and who takes what they tell. */
export async function openAlertWorld(engine: EngineName, mail: Awaited<ReturnType<typeof startMailServer>>) {
  const receiver = startAlertReceiver();
  const server = await startTestServer({
    engine,
    settings: {
      ...{ pushAllowPrivate: ["127.0.0.0/8"], webhookRetryMs: 20, webhookTimeoutMs: 1_000 },
      ...{ alertLookMs: 100, alertAttempts: 4, smtpUrl: mail.url, smtpFrom: "svc <svc@svc.test>" },
    },
  });
  const ok = async (service: string, method: string, body: object) => {
    const answer = await server.rpc(service, method, body);
    expect([method, answer.status, answer.body]).toEqual([method, 200, expect.anything()]);
    return answer.body;
  };
  await ok("ProjectionService", "RegisterProjection", { name: "totals", events: ["never.*"] });
  let made = 0;
  const hook = (path: string) => ({ type: "webhook", url: receiver.url(`/${path}`) });
  const list = async (rule: string): Promise<FoundAlert[]> =>
    (await ok("AlertService", "ListAlerts", { rule })).alerts ?? [];
  const kinds = (path: string): string[] => receiver.at(`/${path}`).map(({ body }) => body.type);
  const write = (statement: Sql) => server.running.domain.store.write((session) => session.run(statement));
  const lookAt = async (name: string) =>
    (await server.running.domain.store.one<{ at: number }>(
      sql`SELECT look_at AS at FROM alert_rules WHERE name = ${name}`,
    ))!.at;
  return {
    ...{ server, receiver, ok, hook, list, kinds, write },
    fresh: () => `a${++made}`,
    put: (name: string, rule: object) =>
      ok("AlertService", "PutAlertRule", {
        ...{ name, targets: [hook(name)], repeatAfterMs: 0, resolveAfterMs: 1_000 },
        ...rule,
      }),
    drop: (name: string) => ok("AlertService", "DeleteAlertRule", { name }),
    /** The messages at the path, once it got so many of the kind. */
    told: (path: string, kind: string, count = 1) =>
      until(
        async () => kinds(path).filter((one) => one === kind).length >= count && receiver.at(`/${path}`),
        { about: `${count} ${kind} at ${path}`, ...waiting },
      ),
    found: (rule: string, is: (alerts: FoundAlert[]) => boolean) =>
      until(
        async () => {
          const alerts = await list(rule);
          return is(alerts) && alerts;
        },
        { about: `alerts of ${rule}`, ...waiting },
      ),
    /** Waits for so many looks more at the rule. */
    async looked(name: string, times = 3) {
      for (let time = 0; time < times; time++) {
        const before = await lookAt(name);
        await until(async () => (await lookAt(name)) > before, { about: `a look at ${name}`, ...waiting });
      }
    },
    /** Whether projection `totals` stands at an error, which is what most rules of tests look for. */
    trouble: (is: boolean) =>
      write(sql`UPDATE projections SET status = ${is ? "error" : "running"} WHERE name = 'totals'`),
    async stop() {
      await server.stop();
      receiver.stop();
    },
  };
}
